"""How an image meets a network: its size there, resizing as the field's models were trained with, centred padding.

b images, c channels, h x w pixels; sizes are (h, w), offsets (top, left).
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from densevit.errors import ConfigError
from densevit.model_card import PreprocessConfig
from densevit.structures import Size

Interpolation = Literal["bilinear", "bicubic", "area", "adaptive", "nearest"]


def network_steps(size: Size, rule: PreprocessConfig, multiple: int) -> list[Size]:
    """The sizes through which an image of `size` passes on its way to the network; the last is `network_size`."""
    last = network_size(size, rule, multiple)
    return [longest_side(size, rule), last] if rule.mode == "longest" else [last]


def longest_side(size: Size, rule: PreprocessConfig) -> Size:
    assert rule.size is not None
    scale = min(bound / side for bound, side in zip(rule.size, size, strict=True))
    h, w = (max(1, round(scale * side)) for side in size)
    return h, w


def network_size(size: Size, rule: PreprocessConfig, multiple: int) -> Size:
    """The size at which a network sees an image of `size`.

    `lower_bound` and `upper_bound` round as MiDaS and Depth Anything do: to the nearest multiple, but never
    across the bound. `native` changes nothing (the encoder pads).

    Raises:
        ConfigError: a rule that needs a size has none.
    """
    if rule.mode == "native":
        return size
    if rule.size is None:
        raise ConfigError(f"resize: mode '{rule.mode}' needs a size (h, w).")
    if rule.mode == "shortest":
        short = min(size)
        h, w = (rule.size[0] * side // short for side in size)
        return h, w
    if rule.mode == "longest":
        h, w = (max(multiple, (side + multiple // 2) // multiple * multiple) for side in longest_side(size, rule))
        return h, w
    scales = [bound / side for bound, side in zip(rule.size, size, strict=True)]
    if rule.mode == "minimal":
        scales = [min(scales, key=lambda scale: abs(1 - scale))] * 2
    elif rule.mode == "lower_bound":
        scales = [max(scales)] * 2
    elif rule.mode == "upper_bound":
        scales = [min(scales)] * 2
    h, w = (
        _round(scale * side, multiple, rule.mode, bound)
        for scale, side, bound in zip(scales, size, rule.size, strict=True)
    )
    return h, w


def _round(side: float, multiple: int, mode: str, bound: int) -> int:
    nearest = round(side / multiple) * multiple
    if mode == "upper_bound" and nearest > bound:
        nearest = math.floor(side / multiple) * multiple
    if mode == "lower_bound" and nearest < bound:
        nearest = math.ceil(side / multiple) * multiple
    return max(nearest, multiple)


def resize(
    x: Float[Tensor, "b c _ _"],
    size: Size,
    interpolation: Interpolation = "bicubic",
    *,
    align_corners: bool = False,
    antialias: bool = False,
) -> Float[Tensor, "b c h w"]:
    """Resizes as OpenCV does on floats: its INTER_LINEAR, INTER_CUBIC (a = -0.75, no antialias) and INTER_AREA.

    Args:
        interpolation: `adaptive` is bicubic where a side grows, else area.
        align_corners, antialias: of bilinear and bicubic; with `antialias` as PIL does (a = -0.5).
    """
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    if interpolation == "adaptive":
        interpolation = shrinking_or_growing(x, size)
    if interpolation == "nearest":
        return F.interpolate(x, size=size, mode="nearest")
    if interpolation == "area" and size[0] <= x.shape[-2] and size[1] <= x.shape[-1]:
        rows, columns = areas(x.shape[-2], size[0], x), areas(x.shape[-1], size[1], x)
        return rows @ x @ columns.T
    # INTER_AREA has no areas to average when a side grows; OpenCV interpolates linearly there, too.
    mode = "bilinear" if interpolation == "area" else interpolation
    return F.interpolate(x, size=size, mode=mode, align_corners=align_corners, antialias=antialias)


def shrinking_or_growing(x: Float[Tensor, "b c h w"], size: Size) -> Literal["area", "bicubic"]:
    """What `adaptive` means here."""
    return "bicubic" if size[0] > x.shape[-2] or size[1] > x.shape[-1] else "area"


def areas(before: int, after: int, like: Tensor) -> Float[Tensor, "after before"]:
    """Row i says how much of each old pixel lies in new pixel i; rows sum to one."""
    edges = torch.arange(after + 1, device=like.device, dtype=torch.float64) * (before / after)
    pixels = torch.arange(before, device=like.device, dtype=torch.float64)
    overlap = torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)
    return (overlap.clamp(min=0) * (after / before)).to(like.dtype)


def pad_to_multiple(x: Float[Tensor, "b c h w"], multiple: int) -> tuple[Float[Tensor, "b c height width"], Size]:
    """Pads with zeros on all sides until both sides are multiples; returns where the image now begins."""
    h, w = x.shape[-2:]
    height, width = h + -h % multiple, w + -w % multiple
    top, left = offset = centre((h, w), (height, width))
    if (height, width) != (h, w):
        x = F.pad(x, (left, width - w - left, top, height - h - top))
    return x, offset


def centre(size: Size, outer: Size) -> Size:
    """Where an image of `size` begins in the middle of one of size `outer`; an odd pixel goes to the bottom right."""
    return (outer[0] - size[0]) // 2, (outer[1] - size[1]) // 2


def of_whole_image(x: Float[Tensor, "b c _ _"]) -> bool:
    """Whether an answer is one for the image and not one per pixel: a map of 1 x 1."""
    return tuple(x.shape[-2:]) == (1, 1)


def crop(x: Float[Tensor, "b c _ _"], offset: Size, size: Size) -> Float[Tensor, "b c h w"]:
    """Undoes `pad_to_multiple`."""
    (top, left), (h, w) = offset, size
    return x[..., top : top + h, left : left + w]
