"""An image looked at several times, mirrored or at other scales, and the mean of the answers.

b images, h x w pixels, k numbers per pixel.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import DataError
from densevit.model_card import PreprocessConfig
from densevit.structures import Size

MAX_SCALE = 8
Outputs = dict[str, Float[Tensor, "b _ _ _"]]


def checked_scales(scales: Iterable[float]) -> tuple[float, ...]:
    """
    Raises:
        DataError: none, or not all between 0 and 8.
    """
    given = tuple(scales)
    if not given or not all(isinstance(scale, Real) and 0 < scale <= MAX_SCALE for scale in given):
        raise DataError(f"scales are {given}; they are one or more numbers over 0 and up to {MAX_SCALE}, 1 among them.")
    return given


def scaled(rule: PreprocessConfig, scale: float, size: Size) -> PreprocessConfig:
    """The rule by which an image of `size` meets the network so many times larger; a window keeps its size."""
    if scale == 1:
        return rule
    h, w = size if rule.mode == "native" or rule.size is None else rule.size
    enlarged = (max(1, round(h * scale)), max(1, round(w * scale)))
    return replace(rule, mode="fixed" if rule.mode == "native" else rule.mode, size=enlarged)


def merge_tta(answers: Iterable[Outputs], logits: Collection[str]) -> Outputs:
    """The mean of at least two answers.

    Args:
        logits: heads whose answers are averaged as probabilities, and handed back as their logarithms.
    """
    sums: Outputs = {}
    count = 0
    for answer in answers:
        count += 1
        for name, y in answer.items():
            y = y.softmax(1) if name in logits else y
            sums[name] = sums[name] + y if name in sums else y
    means = {name: y / count for name, y in sums.items()}
    tiny = torch.finfo(torch.float32).tiny
    return {name: y.clamp_min(tiny).log() if name in logits else y for name, y in means.items()}
