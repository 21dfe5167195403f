"""Resizing of 8-bit images by the very code that published pipelines call: rounding to bytes is part of the result.

OpenCV and PIL resize bytes with fixed-point numbers. Floats that are rounded afterwards differ from them in the last
bit here and there, and a network sees that bit.
"""

from typing import NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.errors import ConfigError
from densevit.ops.resize import Interpolation, areas, shrinking_or_growing
from densevit.structures import Size

FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
}


def resize_bytes(
    x: Float[Tensor, "b c _ _"],
    size: Size,
    interpolation: Interpolation = "bicubic",
    *,
    align_corners: bool = False,
    antialias: bool = False,
) -> Float[Tensor, "b c h w"]:
    """Resizes images in [0, 1] as bytes, on the CPU, whatever device they are on.

    Args:
        interpolation: OpenCV's; `adaptive` is bicubic where a side grows, else area.
        align_corners: must be false, as it is in OpenCV and PIL.
        antialias: as PIL and torchvision do, instead of OpenCV.
    """
    assert not align_corners, "no pipeline resizes bytes with corners aligned"
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    if interpolation == "adaptive":
        interpolation = shrinking_or_growing(x, size)
    images = x.mul(255).round().clamp(0, 255)
    if torch.compiler.is_exporting():
        return resize_bytes_traced(images, size, interpolation, antialias).div(255)
    images = images.to("cpu", torch.uint8)
    if antialias:
        resized = F.interpolate(images, size=size, mode=interpolation, align_corners=False, antialias=True)
    else:
        h, w = size
        rows = [
            cv2.resize(image.permute(1, 2, 0).numpy(), (w, h), interpolation=FLAGS[interpolation]) for image in images
        ]
        resized = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2)
    return resized.to(x.device, x.dtype).div_(255)


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
