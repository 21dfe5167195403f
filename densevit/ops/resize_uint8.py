"""Resizing of 8-bit images by the code that published pipelines call: rounding to bytes is part of the result.

OpenCV and PIL resize bytes in fixed-point arithmetic. Resizing floats and rounding afterwards differs from them in the
last bit of some pixels. In an exported graph, which cannot call them, their arithmetic is emulated.
"""

from typing import NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.errors import ConfigError
from densevit.ops.resize import (
    Interpolation,
    a_side_grows,
    area_or_bicubic,
    area_weights,
    interpolation_weights,
    is_symbolic,
    ratio,
)
from densevit.structures import Size

OPENCV_FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
}


def resize_uint8(
    x: Float[Tensor, "b c _ _"],
    size: Size,
    interpolation: Interpolation = "bicubic",
    *,
    align_corners: bool = False,
    antialias: bool = False,
) -> Float[Tensor, "b c h w"]:
    """Resize images in [0, 1] as bytes, on the CPU, whatever device they are on.

    Args:
        interpolation: OpenCV's; `adaptive` is bicubic where a side grows, else area.
        align_corners: must be false, as it is in OpenCV and PIL.
        antialias: as PIL and torchvision do, instead of OpenCV.
    """
    assert not align_corners, "no published pipeline resizes bytes with align_corners"
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    images = x.mul(255).round().clamp(0, 255)
    if interpolation == "adaptive" and is_symbolic(*x.shape[-2:], *size):
        larger, smaller = (emulate_resize_uint8(images, size, how, antialias) for how in ("bicubic", "area"))
        return torch.where(a_side_grows(x, size), larger, smaller).div(255)
    if interpolation == "adaptive":
        interpolation = area_or_bicubic(x, size)
    if torch.compiler.is_exporting():
        return emulate_resize_uint8(images, size, interpolation, antialias).div(255)
    images = images.to("cpu", torch.uint8)
    if antialias:
        resized = F.interpolate(images, size=size, mode=interpolation, align_corners=False, antialias=True)
    else:
        h, w = size
        rows = [
            cv2.resize(image.permute(1, 2, 0).numpy(), (w, h), interpolation=OPENCV_FLAGS[interpolation])
            for image in images
        ]
        resized = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2)
    return resized.to(x.device, x.dtype).div_(255)


Weights = Float[Tensor, "after before"]

LINEAR_UNIT = 2048.0  # OpenCV's fixed-point 1 of INTER_LINEAR
MAX_WEIGHT = 2**15  # torch's weights for bytes are signed 16-bit integers


def emulate_resize_uint8(
    x: Float[Tensor, "b c _ _"], size: Size, interpolation: Interpolation, antialias: bool
) -> Float[Tensor, "b c h w"]:
    """Return the bytes as floats, from 0 to 255, as `resize_uint8` resizes them. Raises ConfigError if an interpolation
    that is not emulated."""
    shrinking = is_symbolic(*x.shape[-2:], *size) or (size[0] <= x.shape[-2] and size[1] <= x.shape[-1])
    if antialias and interpolation in ("bilinear", "bicubic"):
        return resize_antialiased(x, size, interpolation)
    if interpolation == "bicubic" and not antialias:
        rows, columns = (
            interpolation_weights(*sides, "bicubic").to(x) for sides in zip(x.shape[-2:], size, strict=True)
        )
        return (rows @ (x @ columns.T)).round().clamp(0, 255)
    if interpolation == "bilinear" and not antialias:
        return resize_linear(x, size)
    if interpolation == "area" and shrinking and not antialias:
        return resize_area(x, size)
    raise ConfigError(f"8-bit images are resized by '{interpolation}' here, which an exported graph cannot do yet.")


def resize_area(x: Float[Tensor, "b c _ _"], size: Size) -> Float[Tensor, "b c h w"]:
    """Resize by OpenCV's INTER_AREA: halves round to even, but up where four pixels become one."""
    (height, width), (h, w) = x.shape[-2:], size
    rows, columns = area_weights(height, h, x), area_weights(width, w, x)
    if is_symbolic(height, width, h, w):
        means = rows @ (x @ columns.T)  # columns first, as OpenCV: where halves are rounded, the order tells
        four = torch.as_tensor(ratio(height, h) == 2) & torch.as_tensor(ratio(width, w) == 2)
        return torch.where(four, (means + 0.5).floor(), means.round())
    if height % h or width % w:
        return (rows @ (x @ columns.T)).round()
    sums = rows.sign() @ x @ columns.sign().T
    return ((sums + 2) / 4).floor() if (height, width) == (2 * h, 2 * w) else (sums * (h * w / height / width)).round()


def resize_linear(x: Float[Tensor, "b c _ _"], size: Size) -> Float[Tensor, "b c h w"]:
    """Resize by OpenCV's INTER_LINEAR: integers along rows; along columns each of the two terms is shifted to 16
    bits."""
    left, right = neighbours(x.shape[-1], size[1])
    wide = ((select(x, -1, left) * left.weight.to(x) + select(x, -1, right) * right.weight.to(x)) / 16).floor()
    above, below = (
        shifted_product(select(wide, -2, near), near.weight.to(x)[:, None]) for near in neighbours(x.shape[-2], size[0])
    )
    return ((above + below + 2) / 4).floor()


def shifted_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x * weight >> 16 for integers of 15 and 12 bits, in two parts, for a float32 holds 24 bits."""
    high = (weight / 64).floor()
    return ((high * x + ((weight - 64 * high) * x / 64).floor()) / 1024).floor()


class NearestPixel(NamedTuple):
    """One old pixel for each new one, and its weight."""

    pixel: Int64[Tensor, " after"]
    weight: Float[Tensor, " after"]


def neighbours(before: int, after: int) -> tuple[NearestPixel, NearestPixel]:
    """Return the pixels on both sides of each new one; at the border both are the same, and share the weight."""
    scale = 1 / ratio(after, before)  # in the order in which OpenCV divides
    at = ((torch.arange(after, dtype=torch.float64) + 0.5) * scale - 0.5).float()
    first, t = at.floor(), at - at.floor()
    near, far = ((first + i).clamp(0, before - 1).long() for i in (0, 1))
    return NearestPixel(near, ((1 - t) * LINEAR_UNIT).round()), NearestPixel(far, (t * LINEAR_UNIT).round())


def select(x: Tensor, dim: int, near: NearestPixel) -> Tensor:
    return x.index_select(dim, near.pixel.to(x.device))


def resize_antialiased(
    x: Float[Tensor, "b c _ _"], size: Size, interpolation: Interpolation
) -> Float[Tensor, "b c h w"]:
    """Resize as PIL and torch do it: 16-bit weights, first along rows, with rounding to bytes in between."""
    if size[1] != x.shape[-1]:
        weights, one = fixed_point(interpolation_weights(x.shape[-1], size[1], interpolation, antialias=True))
        x = (x @ weights.to(x).T / one.to(x) + 0.5).floor().clamp(0, 255)
    if size[0] != x.shape[-2]:
        weights, one = fixed_point(interpolation_weights(x.shape[-2], size[0], interpolation, antialias=True))
        x = (weights.to(x) @ x / one.to(x) + 0.5).floor().clamp(0, 255)
    return x


def fixed_point(exact: Weights) -> tuple[Weights, Float[Tensor, ""]]:
    """Return the weights as integers, and the integer that stands for 1: the largest power of two that fits, at most
    2**22."""
    bits = ((MAX_WEIGHT - 0.5) / exact.max()).log2().ceil().sub(1).clamp(0, 22)
    one = 2**bits
    return (exact * one).abs().add(0.5).floor() * exact.sign(), one
