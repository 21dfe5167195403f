"""Resizing of 8-bit images in plain arithmetic, for graphs, which can call neither OpenCV nor torch on bytes.

What those compute with integers is done here with whole numbers in float32, by the same weights and roundings. In at
most one byte of a thousand, whose value lies at a half, another order of sums may round it the other way.
b images, c channels, h x w pixels.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.errors import ConfigError
from densevit.ops.resize import Interpolation, Size, areas

Weights = Float[Tensor, "after before"]

ONE = 2048.0  # OpenCV's weights of INTER_LINEAR are so many times themselves
LARGEST = 2**15  # torch's weights of bytes have 16 bits, one of them a sign


def resize_bytes_traced(
    x: Float[Tensor, "b c _ _"], size: Size, interpolation: Interpolation, antialias: bool
) -> Float[Tensor, "b c h w"]:
    """Bytes as floats, from 0 to 255, as `resize_bytes` resizes them.

    Raises:
        ConfigError: a way of resizing that is not written here.
    """
    shrinking = size[0] <= x.shape[-2] and size[1] <= x.shape[-1]
    if antialias and interpolation in ("bilinear", "bicubic"):
        return antialiased(x, size, interpolation)
    if interpolation == "bicubic" and not antialias:
        rows, columns = (spread(*sides, "bicubic").to(x) for sides in zip(x.shape[-2:], size, strict=True))
        return (rows @ (x @ columns.T)).round().clamp(0, 255)
    if interpolation == "bilinear" and not antialias:
        return linear(x, size)
    if interpolation == "area" and shrinking and not antialias:
        return area(x, size)
    raise ConfigError(f"bytes are resized by '{interpolation}' here, which no graph can say yet.")


def area(x: Float[Tensor, "b c _ _"], size: Size) -> Float[Tensor, "b c h w"]:
    """OpenCV's INTER_AREA: halves go to the even number, and up where four pixels become one."""
    (height, width), (h, w) = x.shape[-2:], size
    rows, columns = areas(height, h, x), areas(width, w, x)
    if height % h or width % w:
        return (rows @ x @ columns.T).round()
    sums = rows.sign() @ x @ columns.sign().T
    return ((sums + 2) / 4).floor() if (height, width) == (2 * h, 2 * w) else (sums * (h * w / height / width)).round()


def linear(x: Float[Tensor, "b c _ _"], size: Size) -> Float[Tensor, "b c h w"]:
    """OpenCV's INTER_LINEAR: whole numbers along rows; along columns each of the two terms is cut to 16 bits."""
    left, right = neighbours(x.shape[-1], size[1])
    wide = ((taken(x, -1, left) * left.weight.to(x) + taken(x, -1, right) * right.weight.to(x)) / 16).floor()
    above, below = (cut(taken(wide, -2, near), near.weight.to(x)[:, None]) for near in neighbours(x.shape[-2], size[0]))
    return ((above + below + 2) / 4).floor()


def cut(x: Tensor, weight: Tensor) -> Tensor:
    """The product over 2 ** 16, rounded down, of whole numbers of 15 and 12 bits: too many for one float32."""
    high = (weight / 64).floor()
    return ((high * x + ((weight - 64 * high) * x / 64).floor()) / 1024).floor()


class Near(NamedTuple):
    """Old pixels, one for each new one, and their weights."""

    pixel: Int64[Tensor, " after"]
    weight: Float[Tensor, " after"]


def neighbours(before: int, after: int) -> tuple[Near, Near]:
    """The pixels on both sides of each new one; at the border both are the same, and share the weight."""
    scale = 1 / (after / before)  # as OpenCV has it, to the last bit
    place = ((torch.arange(after, dtype=torch.float64) + 0.5) * scale - 0.5).float()
    first, t = place.floor(), place - place.floor()
    near, far = ((first + i).clamp(0, before - 1).long() for i in (0, 1))
    return Near(near, ((1 - t) * ONE).round()), Near(far, (t * ONE).round())


def taken(x: Tensor, dim: int, near: Near) -> Tensor:
    return x.index_select(dim, near.pixel.to(x.device))


def antialiased(x: Float[Tensor, "b c _ _"], size: Size, interpolation: Interpolation) -> Float[Tensor, "b c h w"]:
    """As PIL and torch do it: weights of 16 bits, first along rows, and bytes again in between."""
    if size[1] != x.shape[-1]:
        weights, one = fixed_point(spread(x.shape[-1], size[1], interpolation, antialias=True))
        x = (x @ weights.to(x).T / one.to(x) + 0.5).floor().clamp(0, 255)
    if size[0] != x.shape[-2]:
        weights, one = fixed_point(spread(x.shape[-2], size[0], interpolation, antialias=True))
        x = (weights.to(x) @ x / one.to(x) + 0.5).floor().clamp(0, 255)
    return x


def spread(before: int, after: int, interpolation: Interpolation, antialias: bool = False) -> Weights:
    """Row i says how much of each old pixel goes into new pixel i, in float64."""
    unit = torch.eye(before, dtype=torch.float64)[None, None]
    return F.interpolate(unit, (after, before), mode=interpolation, align_corners=False, antialias=antialias)[0, 0]


def fixed_point(exact: Weights) -> tuple[Weights, Float[Tensor, ""]]:
    """Weights as whole numbers, and what one of them is worth: as many bits as the largest leaves, at most 22."""
    bits = ((LARGEST - 0.5) / exact.max()).log2().ceil().sub(1).clamp(0, 22)
    one = 2**bits
    return (exact * one).abs().add(0.5).floor() * exact.sign(), one
