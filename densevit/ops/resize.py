"""The size of a network's input, resizing as published models were trained with, and centred padding.

b images, c channels, h x w pixels; sizes are (h, w), offsets (top, left).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from densevit.errors import ConfigError
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Size
from densevit.utils.device import upload

Interpolation = Literal["bilinear", "bicubic", "area", "adaptive", "nearest"]

STRIP = 64  # rows that `resize_rows_and_columns` resizes at a time, so that they stay in the cache


@dataclass(frozen=True)
class KnownSteps(PreprocessConfig):
    """Preprocessing whose sizes are given: in a graph for images of any size they are symbolic."""

    steps: tuple[Size, ...] = ()  # as `network_steps` returns them


def network_steps(size: Size, config: PreprocessConfig, multiple: int) -> list[Size]:
    """Return the sizes to which an image of `size` is resized one after the other; the last is `network_size`."""
    if isinstance(config, KnownSteps):
        return list(config.steps)
    last = network_size(size, config, multiple)
    if config.mode == "padded":
        return [fit_longest_side(size, config)]
    return [fit_longest_side(size, config), last] if config.mode == "longest" else [last]


def fit_longest_side(size: Size, config: PreprocessConfig) -> Size:
    assert config.size is not None
    scale = min(bound / side for bound, side in zip(config.size, size, strict=True))
    h, w = (max(1, round(scale * side)) for side in size)
    return h, w


def unpadded_size(size: Size, config: PreprocessConfig) -> Size | None:
    """Return the size of a resized image of mode `padded` before it is padded; None for any other mode."""
    return fit_longest_side(size, config) if config.mode == "padded" else None


def pad_below(x: Float[Tensor, "b c _ _"], config: PreprocessConfig) -> Float[Tensor, "b c _ _"]:
    """Pad a resized image of mode `padded` with black, on the right and below; return any other as it is."""
    if config.mode != "padded":
        return x
    assert config.size is not None
    return F.pad(x, (0, config.size[1] - x.shape[-1], 0, config.size[0] - x.shape[-2]))


def crop_below(y: Float[Tensor, "b c _ _"], size: Size, config: PreprocessConfig) -> Float[Tensor, "b c _ _"]:
    """Undo `pad_below`, for an image of `size`."""
    content = unpadded_size(size, config)
    return y if content is None else crop(y, (0, 0), content)


def network_size(size: Size, config: PreprocessConfig, multiple: int) -> Size:
    """Return the size of a network's input for an image of `size`.

    `lower_bound` and `upper_bound` round as MiDaS and Depth Anything do: to the nearest multiple, but never across the
    bound. `native` changes nothing (the encoder pads). Raises ConfigError if a resize mode that needs a size has none.
    """
    if config.mode == "native":
        return size
    if config.size is None:
        raise ConfigError(f"resize: mode '{config.mode}' needs a size (h, w).")
    if config.mode == "padded":
        return config.size
    if config.mode == "shortest":
        short = min(size)
        h, w = (config.size[0] * side // short for side in size)
        return h, w
    if config.mode == "longest":
        h, w = (max(multiple, (side + multiple // 2) // multiple * multiple) for side in fit_longest_side(size, config))
        return h, w
    scales = [bound / side for bound, side in zip(config.size, size, strict=True)]
    if config.mode == "minimal":
        scales = [min(scales, key=lambda scale: abs(1 - scale))] * 2
    elif config.mode == "lower_bound":
        scales = [max(scales)] * 2
    elif config.mode == "upper_bound":
        scales = [min(scales)] * 2
    h, w = (
        _round(scale * side, multiple, config.mode, bound)
        for scale, side, bound in zip(scales, size, config.size, strict=True)
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
    opencv: bool = False,
) -> Float[Tensor, "b c h w"]:
    """Resize maps as torch does, or images as OpenCV does on float64: INTER_LINEAR, INTER_CUBIC, INTER_AREA.

    Args:
        interpolation: bicubic has a = -0.75; `adaptive` is bicubic where a side grows, else area.
        align_corners, antialias: of bilinear and bicubic; with `antialias` as PIL does (a = -0.5).
        opencv: source positions as OpenCV computes them; torch's are float32, up to 4e-4 of a pixel off at 6000 pixels.
    """
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    if interpolation in ("area", "adaptive") and is_symbolic(*x.shape[-2:], *size):
        return resize_either_way(x, size, "bilinear" if interpolation == "area" else "bicubic")
    if interpolation == "adaptive":
        interpolation = area_or_bicubic(x, size)
    if opencv and interpolation in ("bilinear", "bicubic") and not (align_corners or antialias):
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return resize_rows_and_columns(x, size, interpolation)
        return resize_axis(resize_axis(x, -2, size[0], interpolation), -1, size[1], interpolation)
    if antialias and torch.compiler.is_exporting():
        # OpenVINO leaves `antialias` of an ONNX Resize out in bicubic interpolation, without a word.
        return resize_by_matrices(x, size, interpolation)
    if interpolation == "nearest":
        return F.interpolate(x, size=size, mode="nearest")
    if interpolation == "area" and size[0] <= x.shape[-2] and size[1] <= x.shape[-1]:
        (rows,), (columns,) = (constants(areas, x, *sides) for sides in zip(x.shape[-2:], size, strict=True))
        return rows @ x @ columns.T
    # INTER_AREA has no areas to average when a side grows; OpenCV interpolates linearly there, too.
    mode = "bilinear" if interpolation == "area" else interpolation
    return F.interpolate(x, size=size, mode=mode, align_corners=align_corners, antialias=antialias)


def resize_by_matrices(x: Float[Tensor, "b c _ _"], size: Size, interpolation: Interpolation) -> Tensor:
    """Resize by two matrices, as torch does with `antialias`, up to the last digits."""
    rows, columns = (
        interpolation_weights(before, after, interpolation, antialias=True).to(x)
        for before, after in zip(x.shape[-2:], size, strict=True)
    )
    return rows @ x @ columns.T


def resize_either_way(x: Float[Tensor, "b c _ _"], size: Size, growing: Interpolation) -> Float[Tensor, "b c h w"]:
    """Average areas, or interpolate where a side grows: in a graph for images of any size, which has both rules."""
    grows = a_side_grows(x, size)
    rows, columns = (
        torch.where(grows, interpolation_weights(before, after, growing).to(x), area_weights(before, after, x))
        for before, after in zip(x.shape[-2:], size, strict=True)
    )
    return rows @ x @ columns.T


def a_side_grows(x: Float[Tensor, "b c h w"], size: Size) -> Bool[Tensor, ""]:
    """Return whether a side grows, in a graph where the sizes are symbolic."""
    larger = [torch.scalar_tensor(new) > torch.scalar_tensor(old) for new, old in zip(size, x.shape[-2:], strict=True)]
    return torch.stack(larger).any()


def resize_axis(
    x: Tensor, dim: int, after: int, interpolation: Interpolation, step: Float[Tensor, ""] | None = None
) -> Tensor:
    """Return one axis as OpenCV resizes it: a weighted sum of 2 or 4 old pixels for each new one. `step`: of the new
    pixels, in old ones; by default the ratio of the sizes."""
    if x.shape[dim] == after:
        return x
    index, weight = constants(taps, x, x.shape[dim], after, interpolation, step)
    if dim == -2:
        weight = weight[..., None]
    y = x.index_select(dim, index[0]) * weight[0]
    for i, w in zip(index[1:], weight[1:], strict=True):
        y = torch.addcmul(y, x.index_select(dim, i), w)
    return y


def resize_rows_and_columns(x: Float[Tensor, "b c _ _"], size: Size, interpolation: Interpolation) -> Tensor:
    """Return `resize_axis` of both axes, several times as fast on a CPU; keeps the memory format.

    `embedding_bag` sums weighted rows without a copy of each. Columns are resized as rows of the transposed image.
    """
    channels_last = x.stride(1) == 1
    maps = x.permute(0, 2, 3, 1) if channels_last else x.flatten(0, 1)[..., None]
    n, h, w, c = maps.shape
    (rows, row_weight), (columns, column_weight) = (
        (index.T.contiguous(), weight.T.to(x).contiguous())
        for index, weight in (taps(h, size[0], interpolation), taps(w, size[1], interpolation))
    )
    rows = (rows + h * torch.arange(n)[:, None, None]).flatten(0, 1)
    pixels, strips = maps.reshape(n * h, w * c), []
    for index, weight in zip(torch.split(rows, STRIP), torch.split(row_weight.repeat(n, 1), STRIP), strict=True):
        strip = F.embedding_bag(index, pixels, mode="sum", per_sample_weights=weight)
        strip = strip.view(-1, w, c).transpose(0, 1).reshape(w, -1)
        strip = F.embedding_bag(columns, strip, mode="sum", per_sample_weights=column_weight)
        strips.append(strip.view(size[1], -1, c).transpose(0, 1))
    y = torch.cat(strips)
    return y.view(n, *size, c).permute(0, 3, 1, 2) if channels_last else y.view(*x.shape[:2], *size)


def constants(make: Callable[..., tuple[Tensor, ...]], x: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """Return the tensors that a function makes of sizes, on the device of `x`, and in its type where they are floats.
    Those on a GPU are kept for the next image of the size."""
    if x.device.type == "cpu" or torch.compiler.is_compiling():
        return tuple(constant(t, x.dtype).to(x.device) for t in make(*args))
    return cached_constants(make, x.device, x.dtype, *args)


@lru_cache(maxsize=128)
def cached_constants(
    make: Callable[..., tuple[Tensor, ...]], device: torch.device, dtype: torch.dtype, *args: Any
) -> tuple[Tensor, ...]:
    with torch.inference_mode(False):  # a training may read them next
        return tuple(upload(constant(t, dtype), device) for t in make(*args))


def constant(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def is_symbolic(*sides: int) -> bool:
    """Return whether one of them is a variable of a graph that is traced for images of any size."""
    return any(isinstance(side, torch.SymInt) for side in sides)


def ratio(a: int, b: int) -> float | Float[Tensor, ""]:
    """Return a / b; a float64 tensor in a graph where they are symbolic, whose own numbers are float32."""
    if is_symbolic(a, b):
        return torch.scalar_tensor(a, dtype=torch.float64) / torch.scalar_tensor(b, dtype=torch.float64)
    return a / b


def taps(
    before: int, after: int, interpolation: Interpolation, step: float | Float[Tensor, ""] | None = None
) -> tuple[Int64[Tensor, "t n"], Float[Tensor, "t n"]]:
    """Return the old pixels that make up each of `after` new ones, and their weights.

    In float64; OpenCV rounds the positions of bicubic, but not of bilinear, to float32 (imgproc/src/resize.cpp).
    """
    step = ratio(before, after) if step is None else step
    at = (torch.arange(after, dtype=torch.float64) + 0.5) * step - 0.5
    at = at.float().double() if interpolation == "bicubic" else at.clamp(min=0)
    first = at.floor()
    t, offsets = at - first, torch.arange(-1, 3) if interpolation == "bicubic" else torch.arange(2)
    weight = torch.stack([cubic(t + 1), cubic(t), cubic(1 - t), cubic(2 - t)] if len(offsets) == 4 else [1 - t, t])
    return (first.long() + offsets[:, None]).clamp(0, before - 1), weight


def cubic(x: Float[Tensor, "*n"], a: float = -0.75) -> Float[Tensor, "*n"]:
    """Return the cubic convolution kernel at 0 <= x <= 2 (Keys 1981)."""
    return torch.where(x <= 1, ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)


def area_or_bicubic(x: Float[Tensor, "b c h w"], size: Size) -> Literal["area", "bicubic"]:
    """Return the interpolation that `adaptive` stands for."""
    return "bicubic" if size[0] > x.shape[-2] or size[1] > x.shape[-1] else "area"


def interpolation_weights(
    before: int, after: int, interpolation: Interpolation, antialias: bool = False
) -> Float[Tensor, "after before"]:
    """Return a matrix whose row i holds the weight of each old pixel in new pixel i, in float64."""
    old = torch.arange(before, dtype=torch.float64)
    if not antialias:
        index, weight = taps(before, after, interpolation)
        return ((index[..., None] == old) * weight[..., None]).sum(0)
    step = torch.as_tensor(ratio(before, after), dtype=torch.float64)
    centres = (torch.arange(after, dtype=torch.float64) + 0.5) * step
    distance = (old + 0.5 - centres[:, None]).abs() / step.clamp(min=1)
    linear = (1 - distance).clamp(min=0)
    weight = linear if interpolation == "bilinear" else torch.where(distance < 2, cubic(distance, a=-0.5), 0.0)
    return weight / weight.sum(1, keepdim=True)


def area_weights(before: int, after: int, like: Tensor) -> Float[Tensor, "after before"]:
    """Return `areas` in the type and on the device of a tensor."""
    (weights,) = areas(before, after)
    return weights.to(like.dtype).to(like.device)  # in this order: Apple's GPUs have no float64


def areas(before: int, after: int) -> tuple[Float[Tensor, "after before"]]:
    """Return a matrix whose row i holds the share of new pixel i that each old pixel covers; rows sum to one."""
    edges = torch.arange(after + 1, dtype=torch.float64) * ratio(before, after)
    pixels = torch.arange(before, dtype=torch.float64)
    overlap = torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)
    return (overlap.clamp(min=0) * ratio(after, before),)


def pad_to_multiple(x: Float[Tensor, "b c h w"], multiple: int) -> tuple[Float[Tensor, "b c height width"], Size]:
    """Pad with zeros on all sides until both sides are multiples; return where the image now begins."""
    h, w = x.shape[-2:]
    height, width = h + -h % multiple, w + -w % multiple
    top, left = offset = centre((h, w), (height, width))
    if (height, width) != (h, w):
        x = F.pad(x, (left, width - w - left, top, height - h - top))
    return x, offset


def centre(size: Size, outer: Size) -> Size:
    """Return where an image of `size` begins in the middle of one of size `outer`; an odd pixel goes to the bottom
    right."""
    return (outer[0] - size[0]) // 2, (outer[1] - size[1]) // 2


def is_image_level(x: Float[Tensor, "b c _ _"]) -> bool:
    """Return whether an output is for the whole image, a map of 1 x 1, and not for each pixel."""
    return tuple(x.shape[-2:]) == (1, 1)


def crop(x: Float[Tensor, "b c _ _"], offset: Size, size: Size) -> Float[Tensor, "b c h w"]:
    """Undo `pad_to_multiple`."""
    (top, left), (h, w) = offset, size
    return x[..., top : top + h, left : left + w]
