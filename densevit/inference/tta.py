"""Test-time augmentation: the mean of predictions for an image, its mirror image and other scales.

b images, h x w pixels, k numbers per pixel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Real

from jaxtyping import Float
from torch import Tensor

from densevit.errors import DataError
from densevit.output_kinds import OutputKind
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Size

MAX_SCALE = 8
Outputs = dict[str, Float[Tensor, "b _ _ _"]]
"""Predictions by head."""


def check_scales(scales: Iterable[float]) -> tuple[float, ...]:
    """Raises DataError: none, or not all between 0 and 8."""
    given = tuple(scales)
    if not given or not all(isinstance(scale, Real) and 0 < scale <= MAX_SCALE for scale in given):
        raise DataError(f"scales are {given}; they are one or more numbers over 0 and up to {MAX_SCALE}, 1 among them.")
    return given


def scale_preprocessing(config: PreprocessConfig, scale: float, size: Size) -> PreprocessConfig:
    """Preprocessing that makes the network's input of an image of `size` so many times larger.

    A sliding window keeps its size.
    """
    if scale == 1:
        return config
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
