"""Scores of clips: one alignment a clip, frame metrics averaged over its frames, and temporal consistency."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8

from densevit.errors import DataError
from densevit.evaluation.depth.metrics import depth_metrics
from densevit.evaluation.scores import register_metrics
from densevit.ops.flow import consistent, dense_flow, sample
from densevit.ops.geometry import Matrix, backproject
from densevit.structures import Box, Row, Sample

Align = Literal["none", "scale", "affine", "disparity"]
"""How a clip's predictions are fitted to its ground truth, once for the whole clip: not at all; by the ratio that is
best in log depth; by scale and shift in depth; by scale and shift in disparity."""

USUAL: dict[str, Align] = {"metric": "none", "affine": "affine", "disparity": "disparity"}
"""By what predictions are."""

METRICS = ("abs_rel", "d1", "rmse", "tae", "opw", "rtc", "flicker", "scale_jitter")
"""In the order of the tables; d1 and rtc are better when larger."""

Map = Float[np.ndarray, "h w"]


@dataclass(frozen=True, kw_only=True)
class VideoProtocol:
    """What of a clip counts."""

    name: str = "plain"
    frames: int | None = None  # the first n of a clip; None is all
    # metres between which ground truth counts, and to which predictions are clamped
    range: tuple[float, float] = (1e-3, 80.0)
    # rows and columns left out at each side: (top, bottom, left, right)
    margins: tuple[int, int, int, int] = (0, 0, 0, 0)

    def box(self, h: int, w: int) -> Box:
        top, bottom, left, right = self.margins
        return top, h - bottom, left, w - right


VIDEO_DEPTH_ANYTHING = {
    "kitti": VideoProtocol(name="video_depth_anything", frames=110, range=(1e-3, 80.0)),
    "sintel": VideoProtocol(name="video_depth_anything", frames=100, range=(1e-3, 70.0)),
    "scannet": VideoProtocol(name="video_depth_anything", frames=90, range=(1e-3, 10.0), margins=(8, 8, 11, 11)),
}
"""By data set, as benchmark/eval of Video Depth Anything has them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipFrame(Sample):
    """A frame with its prediction, and what is known of it."""

    prediction: Float32[np.ndarray, "h w"]


Frames = Callable[[], Iterator[ClipFrame]]
"""Reads the frames of a clip anew at each call, so that none must stay in memory."""


@dataclass
class Fit:
    """Least squares of one line, summed up frame by frame in float64."""

    n: float = 0.0
    sums: Float64[np.ndarray, "4"] = field(default_factory=lambda: np.zeros(4))

    def add(self, x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"]) -> None:
        self.n += x.size
        self.sums += (x.sum(), y.sum(), x @ x, x @ y)

    def line(self) -> tuple[float, float]:
        x, y, xx, xy = self.sums / self.n
        variance = xx - x * x
        if variance <= 1e-12 * max(xx, 1e-300):
            return 0.0, float(y)
        scale = (xy - x * y) / variance
        return float(scale), float(y - scale * x)


Aligned = Callable[[Map], Map]


def score_clip(frames: Frames, protocol: VideoProtocol, align: Align, kind: str) -> Row:
    """Return the metrics of a clip; those for which something is not known are left out. Raises DataError: predictions
    without unit and no ground truth that they can be fitted to; nothing to score; or frames of several sizes.

    Args:
        align: how predictions are fitted, once for the whole clip.
        kind: of the predictions: metric, affine or disparity.
    """
    move = fit_clip(frames, protocol, align, kind)
    rows: list[Row] = []
    errors: list[float] = []
    changes: list[Change] = []
    scales: list[float] = []
    before: tuple[ClipFrame, Map] | None = None
    count = 0
    for frame in islice(frames(), protocol.frames):
        count += 1
        depth = move(frame.prediction)
        picked = pixels(frame, depth, protocol)
        if picked is not None:
            p, d = picked
            known = ~np.isnan(p)
            p = np.where(known, p, protocol.range[0]).clip(*protocol.range)  # no depth: the nearest, as of images
            scores = depth_metrics(p, d)
            rows.append({name: scores[name] for name in ("abs_rel", "d1", "rmse")})
            if known.any():
                scales.append(float(np.log(np.median(d[known] / p[known]))))
        if before is not None:
            old, earlier = before
            if earlier.shape != depth.shape:
                (h, w), (height, width) = depth.shape, earlier.shape
                raise DataError(f"{frame.name} is {h}x{w}, those before {height}x{width}, and a clip has one size.")
            changes.append(flow_change(old.image, frame.image, earlier, depth))
            views = [x for x in (old.pose, frame.pose, old.intrinsics, frame.intrinsics) if x is not None]
            if len(views) == 4:
                errors.append(temporal_alignment_error(earlier, depth, *views))
        before = frame, depth
    if count < 2:
        raise DataError(f"a clip of {count} frames; temporal consistency needs two or more.")
    result: Row = {"frames": float(count)}
    if rows:
        result |= {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    means = {"tae": errors, "opw": [change.opw for change in changes], "rtc": [change.rtc for change in changes]}
    result |= {name: float(np.nanmean(values)) for name, values in means.items() if np.isfinite(values).any()}
    if np.isfinite(wobble := flicker([change.ratio for change in changes])):
        result["flicker"] = wobble
    if len(scales) > 1:
        result["scale_jitter"] = 100 * float(np.std(scales))
    return result


def inverse(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.asarray(1 / np.maximum(values, 1e-6))


def unchanged(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return values


def fit_clip(frames: Frames, protocol: VideoProtocol, align: Align, kind: str) -> Aligned:
    """Return what makes depth in metres of the clip's predictions; of a clip without ground truth the map as it is."""
    near, far = protocol.range
    if align == "none":
        return lambda values: np.clip(values, near, far)
    compared = inverse if (align == "disparity") != (kind == "disparity") else unchanged
    fit, logs = Fit(), [0.0, 0.0]
    for frame in islice(frames(), protocol.frames):
        picked = pixels(frame, frame.prediction, protocol)
        if picked is None:
            continue
        usable = np.isfinite(picked[0]) & ((picked[0] > 0) | (compared is unchanged))
        p, d = compared(picked[0][usable]), picked[1][usable]
        if align == "scale":
            positive = p > 0
            logs[0] += float(np.log(d[positive] / p[positive]).sum())
            logs[1] += float(positive.sum())
        else:
            fit.add(p, 1 / d if align == "disparity" else d)
    if align == "scale":
        factor = float(np.exp(logs[0] / logs[1])) if logs[1] else 1.0
        return lambda values: np.clip(compared(values) * factor, near, far)
    if not fit.n:
        return inverse if kind == "disparity" else unchanged
    scale, shift = fit.line()
    if align == "affine":
        return lambda values: np.clip(scale * compared(values) + shift, near, far)
    return lambda values: np.clip(1 / np.maximum(scale * compared(values) + shift, 1e-3), near, far)


def pixels(
    frame: ClipFrame, prediction: Map, protocol: VideoProtocol
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]] | None:
    """Return the prediction and ground truth of the pixels that count; None where there are none."""
    if frame.depth is None or frame.valid is None:
        return None
    y0, y1, x0, x1 = protocol.box(*frame.depth.shape)
    d, p = frame.depth[y0:y1, x0:x1], prediction[y0:y1, x0:x1]
    near, far = protocol.range
    counted = frame.valid[y0:y1, x0:x1] & (d > near) & (d < far)
    if not counted.any():
        return None
    return p[counted].astype(np.float64), d[counted].astype(np.float64)


Rgb = UInt8[np.ndarray, "h w 3"]

STEADY = 1.01  # ratio of two depths of one place that counts as the same

FORMULAE = {
    "abs_rel": "mean(|d - p| / d), of a frame; mean over the frames of a clip",
    "d1": "share of pixels with max(p / d, d / p) < 1.25",
    "tae": "temporal alignment error in %: depth moved to the next frame by the true pose, |p - moved| / p, both ways",
    "opw": "mean(exp(-50 |I - warped I|^2) |D - warped D|) by optical flow, in the unit of the depth",
    "rtc": f"share of places seen in both frames whose depths differ by less than {STEADY - 1:.0%}",
    "flicker": "mean |r(t+1) - r(t)| in %, where r is the median of log(D / warped D) between two frames",
    "scale_jitter": "standard deviation of the frames' log(median(d / p)), in %",
}
"""In words, for depth p (of a map, D) and ground truth d."""
register_metrics("video", FORMULAE)
register_metrics("video", {name: FORMULAE[name] for name in ("d1", "rtc")}, "max")


@dataclass(frozen=True, eq=False)
class Change:
    """Two neighbouring frames compared by optical flow."""

    opw: float  # weighted change of depth
    rtc: float  # share of places of the same depth; NaN where no place is seen in both
    ratio: float  # median of log(D / warped D) of these places; NaN likewise


def temporal_alignment_error(
    first: Map, second: Map, first_pose: Float64[np.ndarray, "4 4"], second_pose: Float64[np.ndarray, "4 4"],
    first_camera: Matrix, second_camera: Matrix,
) -> float:  # fmt: skip
    """Return TAE of a pair in percent, the mean of both directions (Video Depth Anything, benchmark/eval/eval_tae.py).

    As there, a point goes to the nearest pixel and the last one written stays: no test of what hides what, so even true
    depth has an error. For static scenes. NaN where no point of one frame falls into the other.
    """
    there = np.linalg.inv(second_pose) @ first_pose
    forth = one_way(first, second, there, first_camera, second_camera)
    back = one_way(second, first, np.linalg.inv(there), second_camera, first_camera)
    return 100 * (forth + back) / 2


def one_way(source: Map, target: Map, motion: Float64[np.ndarray, "4 4"], k: Matrix, target_k: Matrix) -> float:
    h, w = source.shape
    points = backproject(source.astype(np.float64), k).reshape(-1, 3)
    moved = points[(source > 0).reshape(-1) & np.isfinite(source).reshape(-1)] @ motion[:3, :3].T + motion[:3, 3]
    moved = moved[moved[:, 2] > 1e-6]
    u, v = (np.rint((moved @ target_k.T)[:, i] / moved[:, 2]).astype(np.int64) for i in (0, 1))
    inside = (u >= 0) & (u < w) & (v >= 0) & (v < h)
    warped = np.zeros((h, w))
    warped[v[inside], u[inside]] = moved[inside, 2]
    both = (warped > 0) & (target > 0) & np.isfinite(target)
    if not both.any():
        return float("nan")
    return float((np.abs(target - warped)[both] / target[both]).mean())


def flow_change(before: Rgb, after: Rgb, earlier: Map, later: Map) -> Change:
    """Return what optical flow (OpenCV's DIS) says of two neighbouring frames and their maps.

    OPW as in NVDS (Wang et al. 2023): all pixels count, by how well their colours agree. The others are over pixels
    whose flow is consistent forward and back.
    """
    grays = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in (before, after)]
    back, forth = dense_flow(grays[1], grays[0]), dense_flow(grays[0], grays[1])
    seen = consistent(back, forth, grays[1], grays[0])  # pixels of `after` that are in both
    warped = sample(earlier.astype(np.float32), back)
    inside = sample(np.ones(later.shape, np.float32), back) > 0.999
    valid = inside & (warped > 0) & (later > 0) & np.isfinite(warped) & np.isfinite(later)
    colours = sample(before.astype(np.float32), back) / 255 - after.astype(np.float32) / 255
    weight = np.exp(-50 * (colours**2).sum(-1))
    opw = float((weight * np.abs(later - warped))[valid].mean()) if valid.any() else float("nan")
    logs = np.log(later[valid & seen].astype(np.float64) / warped[valid & seen])
    if not logs.size:
        return Change(opw, float("nan"), float("nan"))
    return Change(opw, float((np.abs(logs) < np.log(STEADY)).mean()), float(np.median(logs)))


def flicker(ratios: list[float]) -> float:
    """Return the mean change in percent of the median ratio of neighbouring maps from one pair to the next; NaN of
    fewer than two.

    A camera that moves steadily changes depths by much the same from frame to frame, a scale that jumps does not.
    """
    steps = np.abs(np.diff(np.array(ratios, np.float64)))
    steps = steps[np.isfinite(steps)]
    return 100 * float(steps.mean()) if steps.size else float("nan")
