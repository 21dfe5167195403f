"""Videos through a model with motion blocks: overlapping windows of frames, each of which also sees two key frames of
before, the video's first and one of the middle of the last window (Video Depth Anything, Chen et al. 2025).

The encoder runs once a frame; its features are kept for later windows. h x w pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from densevit.data.io.readers import Rgb
from densevit.inference.image_input import ImageInput, Map, Maps
from densevit.inference.tta import Outputs
from densevit.inference.video.stabilizer import CUT, SIDE, shrink_gray
from densevit.model_card import Kind
from densevit.model_inputs import NO_INPUTS, ModelInputs
from densevit.models.conditioning.motion import frames_of_clips
from densevit.ops.flow import Gray, consistent, dense_flow
from densevit.output_kinds import output_kind
from densevit.structures import EncoderOutput

OVERLAP = 4  # frames that a window shares with the one before at least, so that maps fade slowly where they are joined
PIXELS = 20_000  # of a frame that scale and shift are fitted to, about
SAME_COLORS = 0.6  # intersection of two frames' colour histograms from which they show the same place

FramesPrediction = tuple[list[Maps], list[EncoderOutput]]

Predict = Callable[[list[ImageInput], list[EncoderOutput]], FramesPrediction]
"""The frames of a clip, and the features of the first of them -> their maps, and the features of the others."""


@dataclass
class PredictedFrame:
    """A frame that was predicted: its features, and its maps as they are given."""

    frame: ImageInput
    features: EncoderOutput
    maps: Maps


class SeenFrame(NamedTuple):
    """A frame, and as optical flow sees it: small and grey."""

    image: Rgb
    gray: Gray


class ClipWindows:
    """Takes the frames of a video one by one and gives their maps in order, by `push` and `flush` as `Stabilizer`.

    A window of n frames holds up to two key frames, n/4 frames of the window before (4 at least, half of them at
    most) and the new ones. Maps without unit are brought to the scale and shift of those before by least squares
    over the frames that both windows hold, and fade into them. Causally each frame is a window of its own, with the
    video's first and the frames just before it, and nothing given is changed again. A cut begins anew, and so does a
    frame of another size.
    """

    def __init__(self, predict: Predict, frames: int, kinds: Mapping[str, Kind], *, causal: bool = False) -> None:
        """
        Args:
            frames: of a window, 2 or more.
            kinds: of the maps, by head.
            causal: give each map before the next frame is taken; else up to `frames` later.
        """
        assert frames > 1
        self.predict, self.frames, self.kinds, self.causal = predict, frames, kinds, causal
        self.overlap = max(1, frames - 2 if causal else min(max(frames // 4, OVERLAP), frames // 2))
        self.keys = min(1 if causal else 2, frames - 1 - self.overlap)
        self.reset()

    def reset(self) -> None:
        self.waiting: list[ImageInput] = []
        self.first: PredictedFrame | None = None
        self.window: list[PredictedFrame] = []  # the last one
        self.held: list[PredictedFrame] = []  # its last frames, which fade into the next
        self.last: SeenFrame | None = None

    def push(self, frame: ImageInput) -> list[Maps]:
        """Take the next frame; return the maps that are ready."""
        done: list[Maps] = []
        seen = SeenFrame(frame.image, shrink_gray(frame.image))
        if self.last is not None and (self.last.image.shape != frame.image.shape or is_cut(self.last, seen)):
            done += self.flush()
        self.last = seen
        self.waiting.append(frame)
        room = 1 if self.causal else self.frames - len(self.context())
        return done + (self.run() if len(self.waiting) >= room else [])

    def flush(self) -> list[Maps]:
        """Return the maps that are still held back; the next frame begins anew."""
        done = self.run() if self.waiting else []
        done += [seen.maps for seen in self.held]
        self.reset()
        return done

    def context(self) -> list[PredictedFrame]:
        """Return the frames of before that the next window holds: key frames, then the last ones."""
        last = self.window[-self.overlap :]
        keys = [] if self.first is None else [self.first]
        if self.keys == 2 and self.window:
            keys.append(self.window[min(3 * self.frames // 8, len(self.window) - 1)])  # 12 of 32
        return [seen for seen in keys[: self.keys] if not any(seen is other for other in last)] + last

    def run(self) -> list[Maps]:
        """Predict the frames that wait, and return the maps that will not change any more."""
        context = self.context()
        frames = [*(seen.frame for seen in context), *self.waiting]
        maps, features = self.predict(frames, [seen.features for seen in context])
        for name, kind in self.kinds.items():
            if output_kind(kind).is_depth and kind != "metric" and context:
                scale, shift = fit([m[name] for m in maps[: len(context)]], [seen.maps[name] for seen in context])
                for m in maps:
                    m[name] = m[name] * np.float32(scale) + np.float32(shift)
        for i, seen in enumerate(self.held):
            share = np.float32((i + 1) / (len(self.held) + 1))
            later = maps[len(context) - len(self.held) + i]
            seen.maps = {
                name: (1 - share) * seen.maps[name] + share * values if self.fades(name) else values
                for name, values in later.items()
            }
        new = [PredictedFrame(*fields) for fields in zip(self.waiting, features, maps[len(context) :], strict=True)]
        self.waiting = []
        self.first = self.first or new[0]
        self.window = context + new
        if self.causal:
            return [seen.maps for seen in new]
        ready = [*self.held, *new]
        self.held = ready[-self.overlap :]
        return [seen.maps for seen in ready[: -self.overlap]]

    def fades(self, name: str) -> bool:
        return output_kind(self.kinds[name]).is_depth or self.kinds[name] == "uncertainty"


class ClipNetwork:
    """A model on the frames of a clip, of the first of which the features are known.

    Attributes:
        new: features of the other frames, once it was called.
    """

    def __init__(self, model: nn.Module, cached: Sequence[EncoderOutput]) -> None:
        self.model, self.cached = model, cached
        self.input_names: tuple[str, ...] = getattr(model, "input_names", ())
        self.new: list[EncoderOutput] = []

    def __call__(self, image: Float[Tensor, "t 3 h w"], inputs: ModelInputs = NO_INPUTS, **options: Any) -> Outputs:
        encoded: EncoderOutput = self.model.get_submodule("encoder")(image[len(self.cached) :])
        self.new = [encoded.map(itemgetter(slice(i, i + 1))) for i in range(len(image) - len(self.cached))]
        inputs = {**inputs, "clips": frames_of_clips(len(image), len(image), image.device)}
        return dict(self.model(image, inputs, features=join([*self.cached, *self.new]), **options))


def is_cut(old: SeenFrame, new: SeenFrame) -> bool:
    """Return whether the camera shows another place: optical flow finds too little of the old frame in the new one, of
    the same size, and colours differ, too. Of a fast turn flow finds as little, but the colours stay.
    """
    flow, back = dense_flow(new.gray, old.gray), dense_flow(old.gray, new.gray)
    if consistent(flow, back, new.gray, old.gray).mean() >= CUT:
        return False
    return cv2.compareHist(colors_of(old.image), colors_of(new.image), cv2.HISTCMP_INTERSECT) < SAME_COLORS


def colors_of(image: Rgb) -> Float32[np.ndarray, "8 8 8"]:
    """Return the histogram of colours; its sum is 1."""
    small = cv2.resize(image, (SIDE // 4, SIDE // 4), interpolation=cv2.INTER_AREA)
    counts = cv2.calcHist([small], [0, 1, 2], None, [8, 8, 8], [0, 256] * 3)
    return np.asarray(counts / counts.sum())


def join(frames: Sequence[EncoderOutput]) -> EncoderOutput:
    """Return the features of single frames as one batch."""
    maps = tuple(torch.cat(tensors) for tensors in zip(*(frame.maps for frame in frames), strict=True))
    prefix = tuple(torch.cat(tensors) for tensors in zip(*(frame.prefix for frame in frames), strict=True))
    return EncoderOutput(maps, prefix, frames[0].image_size)


def fit(source: Sequence[Map], reference: Sequence[Map]) -> tuple[float, float]:
    """Scale and shift that bring maps onto others, by least squares; 1 and the mean difference where the scale would
    not be positive."""
    x, y = (np.concatenate([subsample(m) for m in maps]).astype(np.float64) for maps in (source, reference))
    valid: Bool[np.ndarray, " n"] = np.isfinite(x) & np.isfinite(y)
    x, y = x[valid], y[valid]
    if not x.size:
        return 1.0, 0.0
    variance = float(np.var(x))
    scale = float(np.mean((x - x.mean()) * (y - y.mean()))) / variance if variance > 1e-12 * np.mean(x) ** 2 else 0.0
    scale = scale if scale > 0 else 1.0
    return scale, float(y.mean() - scale * x.mean())


def subsample(values: Map) -> Float32[np.ndarray, " n"]:
    step = max(1, int((values.size / PIXELS) ** 0.5))
    return values[..., ::step, ::step].ravel()
