"""Several passes over one image: sliding windows as in mmseg, and the mean over its mirror image and other scales.

b images, h x w pixels, k numbers per pixel; sizes are (h, w).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.model_inputs import NO_INPUTS, ModelInputs, crop_inputs, join_inputs
from densevit.ops.resize import is_image_level
from densevit.output_kinds import OutputKind
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Box, Size

Outputs = dict[str, Float[Tensor, "b _ _ _"]]
"""Predictions by head."""


def scale_preprocessing(config: PreprocessConfig, scale: float, size: Size) -> PreprocessConfig:
    """Return the preprocessing that makes the network's input of an image of `size` larger by this factor.

    A sliding window keeps its size.
    """
    h, w = size if config.mode == "native" or config.size is None else config.size
    enlarged = (max(1, round(h * scale)), max(1, round(w * scale)))
    return replace(config, mode="fixed" if config.mode == "native" else config.mode, size=enlarged)


def merge_tta(predictions: Iterable[Outputs], kinds: Mapping[str, OutputKind]) -> Outputs:
    """Return the mean of at least two predictions, each head's as its kind is averaged."""
    sums: Outputs = {}
    count = 0
    for outputs in predictions:
        count += 1
        for name, y in outputs.items():
            y = kinds[name].before_mean(y)
            sums[name] = sums[name] + y if name in sums else y
    return {name: kinds[name].after_mean(y / count) for name, y in sums.items()}


WINDOWS_PER_PASS = 8


def window_boxes(size: Size, window: Size, stride: Size | None) -> list[Box]:
    """Return the windows, row by row; the last of each row and column is moved back to end with the image. Without
    stride they are as few as cover it, evenly spread (EoMT).

    On a side that is shorter than the window, the window is as long as the side, so all boxes have one size.
    """
    rows, columns = (
        _spans(side, length, step) for side, length, step in zip(size, window, stride or (None, None), strict=True)
    )
    return [(*row, *column) for row in rows for column in columns]


def _spans(side: int, length: int, step: int | None) -> list[tuple[int, int]]:
    if step is None:
        gaps = max(-(-side // length) - 1, 0)
        starts = [i * (side - length) // gaps for i in range(gaps + 1)] if gaps else [0]
        return [(start, min(start + length, side)) for start in starts]
    count = max(side - length + step - 1, 0) // step + 1
    ends = [min(i * step + length, side) for i in range(count)]
    return [(max(end - length, 0), end) for end in ends]


class SlidingWindow(nn.Module):
    """Applies a model to each window and averages its predictions (logits, or metres) where windows overlap.

    Where one window covers the image, the output is the model's own, bit for bit.
    """

    def __init__(self, model: Callable[..., Outputs], window: Size, stride: Size | None) -> None:
        super().__init__()
        self.model, self.window, self.stride = model, window, stride
        self.input_names: tuple[str, ...] = getattr(model, "input_names", ())

    def forward(self, image: Float[Tensor, "b 3 h w"], inputs: ModelInputs = NO_INPUTS) -> Outputs:
        b, _, h, w = image.shape
        boxes = window_boxes((h, w), self.window, self.stride)
        if len(boxes) == 1:
            return dict(self.model(image, inputs) if inputs else self.model(image))
        sums: Outputs = {}
        counts = image.new_zeros((h, w))
        for start in range(0, len(boxes), WINDOWS_PER_PASS):
            some = boxes[start : start + WINDOWS_PER_PASS]
            crops = torch.cat([image[..., y0:y1, x0:x1] for y0, y1, x0, x1 in some])
            window_inputs = join_inputs([crop_inputs(inputs, y0, x0, (y1 - y0, x1 - x0)) for y0, y1, x0, x1 in some])
            outputs = self.model(crops, window_inputs) if window_inputs else self.model(crops)
            for y0, y1, x0, x1 in some:
                counts[y0:y1, x0:x1] += 1
            for name, y in outputs.items():
                whole = is_image_level(y)
                if name not in sums:
                    sums[name] = image.new_zeros((b, y.shape[1], 1 if whole else h, 1 if whole else w))
                for output, (y0, y1, x0, x1) in zip(torch.split(y.float(), b), some, strict=True):
                    target = sums[name] if whole else sums[name][..., y0:y1, x0:x1]
                    target += output
        return {name: y / (len(boxes) if is_image_level(y) else counts) for name, y in sums.items()}
