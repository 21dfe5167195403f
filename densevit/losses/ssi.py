"""Scale-and-shift-invariant losses (MiDaS, Ranftl et al. 2020), for heads whose output has no unit.

The prediction is compared after each image's own affine alignment, with depth or with disparity (1 / depth in metres).
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Shaped
from pydantic import Field
from torch import Tensor

from densevit.losses.depth import Stride, depth_loss, roughness
from densevit.losses.reduction import (
    MIN_DEPTH,
    Depth,
    Pool,
    Scalar,
    Valid,
    log_ratio,
    masked_mean,
    measured,
    pooled_mean,
    rows,
)
from densevit.structures import DepthKind

Space = Literal["disparity", "depth"]
Alignment = Literal["median", "lstsq"]
Error = Literal["mae", "mse"]

# The ground truth that an alignment in this space makes comparable.
KINDS: Mapping[Space, tuple[DepthKind, ...]] = {
    "disparity": ("metric", "relative", "disparity"),
    "depth": ("metric", "relative", "affine"),
}

Row = Float[Tensor, "b p"]
Mask = Bool[Tensor, "b p"]


@depth_loss("ssi", lambda *, space, **options: KINDS[space])
def ssi(
    pred: Depth,
    target: Depth,
    valid: Valid,
    *,
    space: Space = "disparity",
    align: Alignment = "median",
    error: Error = "mae",
    trim: Annotated[float, Field(ge=0, lt=1)] = 0.2,
    pool: Pool = "image",
    per_clip: bool = False,
    clip_length: int = 1,
) -> Scalar:
    """Return half the mean error of aligned prediction and aligned ground truth, without its largest `trim` share.

    The defaults are MiDaS's best, `ssitrim`: median and mean deviation on both sides, absolute error, the worst fifth
    left out of the sum (and still counted in its divisor). `align="lstsq", error="mse", trim=0` is its `ssimse`.

    Args:
        space: what the head's output is affine to.
        align: how an image's scale and shift are found.
        trim: share of the pixels, those with the largest error, that the loss ignores; chosen in each image, in each
            micro-batch unless `pool` is image.
        per_clip: one scale and shift for all frames of a clip (`data.clip`), not one for each.
    """
    together = clip_length if per_clip else 1
    errors, mask = aligned_error(pred, target, valid, space=space, align=align, together=together)
    size = rows(errors.abs() if error == "mae" else errors.square(), pool)
    inside = rows(mask, pool)
    n = inside.sum(1, keepdim=True)
    ordered = torch.where(inside, size, torch.inf).sort(1).values
    inliers = torch.arange(ordered.shape[1], device=n.device) < (n * (1 - trim)).floor()
    return pooled_mean(torch.where(inliers, ordered, 0.0).sum(1) / 2, n[:, 0], pool)


@depth_loss("ssi_gradient", lambda *, space, **options: KINDS[space])
def ssi_gradient(
    pred: Depth,
    target: Depth,
    valid: Valid,
    *,
    space: Space = "disparity",
    align: Alignment = "median",
    strides: Annotated[tuple[Stride, ...], Field(min_length=1)] = (1, 2, 4, 8),
    pool: Pool = "image",
    per_clip: bool = False,
    clip_length: int = 1,
) -> Scalar:
    """Return the multi-scale gradient of the aligned error, beside `ssi` with equal `space` and `align` (MiDaS: 0.5).

    Args:
        strides: the scales: every n-th row and column is kept.
        per_clip: see `ssi`.
    """
    together = clip_length if per_clip else 1
    errors, mask = aligned_error(pred, target, valid, space=space, align=align, together=together)
    return roughness(errors, mask, strides=strides, reach=1, pool=pool)


def aligned_error(
    pred: Depth, target: Depth, valid: Valid, *, space: Space, align: Alignment, together: int = 1
) -> tuple[Depth, Valid]:
    """Return the aligned prediction minus ground truth, each image by itself, and the mask; 0 where nothing was
    measured.

    With `together`, that number of consecutive images is aligned as if they were one.

    median: both sides lose their median and are divided by their mean absolute deviation from it.
    lstsq: the prediction is scaled and shifted onto the ground truth, which keeps its unit.
    """
    pred, target, mask = measured(pred, target, valid)
    if space == "disparity":
        target = target.clamp_min(MIN_DEPTH).reciprocal()
    p, t, m = (as_clips(x, together) for x in (pred, target, mask))
    errors = _normalised(p, m) - _normalised(t, m) if align == "median" else fitted(p, t, m) - t
    return torch.where(m, errors, 0.0).view_as(pred), mask


def _normalised(values: Row, mask: Mask) -> Row:
    median = torch.where(mask, values, torch.nan).nanmedian(1, keepdim=True).values.nan_to_num(0.0)
    centred = torch.where(mask, values - median, 0.0)
    return centred / _or_one(_mean(centred.abs(), mask), median.abs())


def as_clips(pixels: Shaped[Tensor, "b 1 h w"], length: int) -> Shaped[Tensor, "c p"]:
    """Return one row of pixels for each `length` consecutive images."""
    return pixels.reshape(len(pixels) // length, -1)


def fitted(pred: Row, target: Row, mask: Mask) -> Row:
    """Return the prediction scaled and shifted onto the target; the target's mean where the prediction is constant."""
    p_mean, t_mean = _mean(pred, mask), _mean(target, mask)
    p, t = torch.where(mask, pred - p_mean, 0.0), torch.where(mask, target - t_mean, 0.0)
    scale = _mean(p * t, mask) / _or_one(_mean(p.square(), mask), p_mean.square())
    return scale * p + t_mean


def _mean(values: Row, mask: Mask) -> Float[Tensor, "b 1"]:
    return torch.where(mask, values, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)


def _or_one(spread: Float[Tensor, "b 1"], size: Float[Tensor, "b 1"]) -> Float[Tensor, "b 1"]:
    """Return a spread to divide by; 1 where it is no more than rounding leaves of a constant of that size."""
    eps = torch.finfo(spread.dtype).eps
    return torch.where(spread > eps * size + eps**2, spread, 1.0)


LOWEST = -7.0  # the smallest logarithm of a scale; added, so that the loss is never below 0


def laplace(
    pred: Depth,
    scale: Depth,
    target: Depth,
    valid: Valid,
    *,
    kind: Literal["metric", "affine", "disparity"],
    pool: Pool = "image",
) -> Scalar:
    """Return the mean of |e| / b + ln b + 7 (Kendall and Gal 2017), with e the error of `pred` and b its predicted
    scale.

    e is the difference of natural logarithms for metric depth; for depth and disparity without unit it is that of the
    prediction and the ground truth after each lost its median and was divided by its mean absolute deviation.
    """
    if kind == "metric":
        errors, mask = log_ratio(pred, target, valid)
    else:
        space: Literal["depth", "disparity"] = "disparity" if kind == "disparity" else "depth"
        errors, mask = aligned_error(pred, target, valid, space=space, align="median")
    b = torch.where(mask, scale.to(errors.dtype), 1.0)
    return masked_mean(torch.where(mask, errors.abs() / b + b.log() - LOWEST, 0.0), mask, pool)
