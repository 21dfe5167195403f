"""Depth that does not flicker: each frame is brought to a running reference, the mean of its neighbours in time.

A network that sees frames one by one chooses the scale (a relative one also the shift) of each anew. Neighbouring maps
are brought onto a frame by optical flow, their values changed as the motion of the camera has it
(ops.flow.depth_change), and the scale and shift between them and the frame is fitted where both see the same. The frame
takes the weighted mean of these. What is averaged is a scale and a shift, so edges and moving things stay the frame's
own. The rest of the difference, smoothed, is averaged as well where a place is seen again and agrees (`fuse`).

A window of frames decides, so nothing drifts, a frame depends on few others, and a cut simply ends the window. h x w
pixels.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import exp

import cv2
import numpy as np
from jaxtyping import Bool, Float32

from densevit.data.io.readers import Rgb
from densevit.errors import ConfigError
from densevit.model_card import Kind
from densevit.ops.align import lower_median
from densevit.ops.flow import Flow, Gray, consistent, dense_flow, depth_change, sample
from densevit.output_kinds import DEPTH_KINDS

log = logging.getLogger(__name__)

SIDE = 160  # pixels of the longer side, at which flow is computed and maps are compared
CUT = 0.25  # share of pixels seen in both frames under which there is a cut between them
SUPPORT = 0.05  # share of pixels that a neighbour must share with a frame to count
AGREE = 0.2  # relative difference at which a neighbour's weight in a fusion has fallen to 1/e
FIELD_OF_VIEW = 60.0  # degrees, where no focal length is known

Map = Float32[np.ndarray, "h w"]


@dataclass
class ScaledFrame:
    """A frame at the size of the work."""

    gray: Gray
    values: Map  # log of metric depth, else the map as it is
    valid: Bool[np.ndarray, "h w"]  # where there is a value
    full: Map
    neighbours: list["Neighbour"] = field(default_factory=list)
    ahead: Flow | None = None  # to where each pixel of this one is in the newest frame
    # log(Z there / Z here), and 1 where it was seen in every frame between
    change: Float32[np.ndarray, "h w 2"] | None = None

    @cached_property
    def packed(self) -> Float32[np.ndarray, "h w 2"]:
        return np.dstack([self.values, self.valid.astype(np.float32)])

    @cached_property
    def typical(self) -> float:
        """The median size of the values."""
        return max(float(np.median(np.abs(self.values[self.valid]))), 1e-9) if self.valid.any() else 1.0


@dataclass
class Neighbour:
    """Another frame's values on a frame's pixels."""

    values_and_weight: Float32[np.ndarray, "h w 2"]  # the weight is 1 where both see the same, 0 where not
    distance: int  # in frames; below 0 for later ones

    @property
    def values(self) -> Map:
        return self.values_and_weight[..., 0]

    @property
    def weight(self) -> Map:
        return self.values_and_weight[..., 1]


class Stabilizer:
    """Takes frames with their maps one by one, and gives the stabilised maps in the same order.

    >>> stabilizer = Stabilizer("metric")                            # causal    # doctest: +SKIP
    >>> (depth,) = stabilizer.push(image, depth)                                 # doctest: +SKIP

    Attributes:
        past, future: frames that a map depends on; `future` is also how many maps are held back.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        past: int = 6,
        future: int = 0,
        fuse: bool = True,
        focal: float | None = None,
        limits: tuple[float, float] | None = None,
    ) -> None:
        """Raise ConfigError: maps of another kind, or a negative number of frames.

        Args:
            kind: of the maps: metric maps get a scale, affine and disparity maps a scale and a shift.
            fuse: average static parts per pixel as well; else only scale and shift.
            focal: of the camera, in pixels of the frames; unknown, a field of view of 60 degrees is assumed.
            limits: smallest and largest value that a map may have.
        """
        if kind not in DEPTH_KINDS:
            raise ConfigError(f"only depth can be stabilised, not {kind}.")
        if past < 0 or future < 0:
            raise ConfigError(f"past is {past} and future {future}; both are a number of frames, 0 or more.")
        if kind != "metric" and past and not future:
            log.warning(
                "maps of %s without unit, steadied by earlier frames only, lag by some per cent while the camera moves "
                "towards things; use a lookahead (6), or no stabilising.",
                kind,
            )
        self.kind, self.past, self.future, self.fuse = kind, past, future, fuse
        self.focal, self.limits = focal, limits
        self.recent: deque[ScaledFrame] = deque(maxlen=1)
        self.behind: list[Neighbour] = []  # former frames on the newest one's pixels
        self.pending: deque[ScaledFrame] = deque()
        self.cuts = 0

    def push(self, image: Rgb, values: Map) -> list[Map]:
        """Take the next frame; return the maps that are ready: none, or the one from `future` frames ago.

        A frame of another size begins anew, like a cut; what was held back comes first.
        """
        new = self.shrink(image, values)
        done: list[Map] = []
        if self.recent and self.recent[0].values.shape != new.values.shape:
            done += self.flush()
        if self.recent:
            self.connect(self.recent[0], new)
        new.neighbours = list(self.behind)
        self.recent.append(new)
        self.pending.append(new)
        if len(self.pending) > self.future:
            done.append(self.finish(self.pending.popleft()))
        return done

    def flush(self) -> list[Map]:
        """Return the maps that are still held back; the next frame begins anew."""
        done = [self.finish(held) for held in self.pending]
        self.pending.clear()
        self.recent.clear()
        self.behind.clear()
        return done

    def shrink(self, image: Rgb, values: Map) -> ScaledFrame:
        gray = shrink_gray(image)
        small = cv2.resize(
            values, gray.shape[::-1], interpolation=cv2.INTER_AREA
        )  # one unknown pixel makes its area unknown
        valid = np.isfinite(small) & ((small > 0) if self.kind == "metric" else True)
        small = np.where(valid, small, np.float32(1))
        return ScaledFrame(gray, np.log(small) if self.kind == "metric" else small, valid, values)

    def connect(self, old: ScaledFrame, new: ScaledFrame) -> None:
        """Bring former frames onto the new one, and the new one onto those that are held back."""
        back, forth = dense_flow(new.gray, old.gray), dense_flow(old.gray, new.gray)
        seen = consistent(back, forth, new.gray, old.gray)
        if seen.mean() < CUT:
            self.cuts += 1
            self.behind = []
            for held in self.pending:
                held.ahead = None
            return
        change = -self.depth_change(back, new, seen)  # log(Z new / Z old) on the new frame's pixels
        self.behind = self.warp([Neighbour(old.packed, 0), *self.behind][: self.past], back, change, seen)
        if self.future:
            visible = consistent(forth, back, old.gray, new.gray)
            step = np.dstack([sample(change, forth), visible.astype(np.float32)])
            old.ahead, old.change = np.zeros_like(forth), np.zeros_like(forth)
            old.change[..., 1] = 1
            for held in self.pending:
                self.look_ahead(held, new, forth, step)

    def depth_change(self, flow: Flow, new: ScaledFrame, seen: Bool[np.ndarray, "h w"]) -> Map:
        h, w = new.values.shape
        if self.kind == "affine":
            return np.zeros((h, w), np.float32)  # without its shift there is no parallax to tell
        depth = np.exp(new.values) if self.kind == "metric" else 1 / np.maximum(new.values, 0.01 * new.typical)
        width = w / 2 / float(np.tan(np.deg2rad(FIELD_OF_VIEW / 2)))
        focal = width if self.focal is None else self.focal * w / new.full.shape[1]
        return depth_change(flow, depth, seen & new.valid, focal)

    def warp(self, frames: list[Neighbour], flow: Flow, change: Map, seen: Bool[np.ndarray, "h w"]) -> list[Neighbour]:
        warped = []
        for frame in frames:  # one by one: OpenCV rounds otherwise with other numbers of channels
            moved = sample(frame.values_and_weight, flow)
            moved[..., 0] = self.moved(moved[..., 0], change)
            moved[..., 1] *= seen
            warped.append(Neighbour(moved, frame.distance + 1))
        return warped

    def look_ahead(self, held: ScaledFrame, new: ScaledFrame, forth: Flow, step: Float32[np.ndarray, "h w 2"]) -> None:
        """Follow the pixels of a frame that is held back one frame further, and take the new frame's values there."""
        if held.ahead is None or held.change is None:
            return
        moved = sample(step, held.ahead)
        held.ahead += sample(forth, held.ahead)
        held.change[..., 0] += moved[..., 0]
        held.change[..., 1] *= moved[..., 1]
        there = sample(new.packed, held.ahead)
        there[..., 0] = self.moved(there[..., 0], -held.change[..., 0])
        there[..., 1] *= held.change[..., 1]
        held.neighbours.append(Neighbour(there, -1 - sum(n.distance < 0 for n in held.neighbours)))

    def moved(self, values: Map, change: Map) -> Map:
        """Return the values of a neighbour as they would be in this frame."""
        if self.kind == "metric":
            return np.asarray(values + change)
        return np.asarray(values * np.exp(-change)) if self.kind == "disparity" else values

    def finish(self, frame: ScaledFrame) -> Map:
        """Return the map with the mean scale and shift of its neighbours, and with their mean where places are
        static."""
        h, w = frame.full.shape
        reach = max(self.past, self.future, 1) / 2
        fits: list[tuple[float, float, float, Neighbour]] = []
        for neighbour in frame.neighbours:
            both = (neighbour.weight > 0.5) & frame.valid
            support = float(both.mean())
            if support < SUPPORT:
                continue
            scale, shift = self.fit(frame.values[both], neighbour.values[both])
            weight = exp(-0.5 * (neighbour.distance / reach) ** 2) * min(1.0, support / 0.5)
            fits.append((weight, scale, shift, neighbour))
        total = 1 + sum(weight for weight, *_ in fits)
        scale = (1 + sum(weight * s for weight, s, *_ in fits)) / total
        shift = sum(weight * b for weight, _, b, _ in fits) / total
        rest = self.fused(frame, fits) if self.fuse and fits else None
        if self.kind == "metric":
            out = frame.full * np.float32(exp(shift))
            out = out if rest is None else out * resize(np.exp(rest), (h, w))
        else:
            out = frame.full * np.float32(scale) + np.float32(shift)
            out = out if rest is None else out + resize(rest * np.float32(scale), (h, w))
        frame.neighbours = []
        return np.asarray(out if self.limits is None else np.clip(out, *self.limits, out=out))

    def fit(self, values: Float32[np.ndarray, " n"], other: Float32[np.ndarray, " n"]) -> tuple[float, float]:
        """Scale and shift that bring the frame's values to a neighbour's; of metric depth a shift of the logarithm."""
        step = max(1, len(values) // 2000)
        x, y = values[::step].astype(np.float64), other[::step].astype(np.float64)
        if self.kind == "metric":
            return 1.0, lower_median(y - x)
        weights = np.ones_like(x)
        scale, shift = 1.0, 0.0
        for _ in range(5):
            mean_x, mean_y = np.average(x, weights=weights), np.average(y, weights=weights)
            variance = float(weights @ (x - mean_x) ** 2)
            if variance <= 1e-12 * max(1.0, mean_x**2):
                return 1.0, lower_median(y - x)
            scale = float(weights @ ((x - mean_x) * (y - mean_y))) / variance
            shift = float(mean_y - scale * mean_x)
            off = np.abs(y - scale * x - shift)
            spread = max(1.5 * lower_median(off), 1e-9)
            weights = 1 / (1 + (off / spread) ** 2)
        return (scale, shift) if scale > 0 else (1.0, lower_median(y - x))

    def fused(self, frame: ScaledFrame, fits: list[tuple[float, float, float, Neighbour]]) -> Map:
        """Return what the neighbours' mean has over the frame's own values, once they are of its scale; smooth."""
        unit = 1.0 if self.kind == "metric" else frame.typical
        total, weights = np.zeros_like(frame.values), np.ones_like(frame.values)
        for weight, scale, shift, neighbour in fits:
            off = (neighbour.values - np.float32(shift)) / np.float32(scale) - frame.values
            share = (
                np.float32(weight) * neighbour.weight * np.exp(-((off / np.float32(AGREE * unit)) ** 2)) * frame.valid
            )
            total += share * off
            weights += share
        mean = total / weights
        trust = weights - 1 + np.float32(1e-3)
        top, bottom = (cv2.GaussianBlur(array, (0, 0), 1.0) for array in (mean * trust, trust))
        return np.asarray(top / bottom)


def stabilize_stream(frames: Iterable[tuple[Rgb, Map]], stabilizer: Stabilizer) -> Iterator[Map]:
    """Yield the stabilised maps of (image, map) pairs, `stabilizer.future` frames behind them."""
    for image, values in frames:
        yield from stabilizer.push(image, values)
    yield from stabilizer.flush()


def shrink_gray(image: Rgb) -> Gray:
    """Return the frame at the size of the work."""
    h, w = image.shape[:2]
    ratio = min(1.0, SIDE / max(h, w))
    size = (max(8, round(w * ratio)), max(8, round(h * ratio)))
    return np.asarray(cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA))


def resize(values: Map, size: tuple[int, int]) -> Map:
    return np.asarray(cv2.resize(values, size[::-1], interpolation=cv2.INTER_LINEAR))
