"""Losses that are a mean over pixels: L1, MSE, log-L1 and berHu."""

from typing import Annotated

import torch
from pydantic import Field

from densevit.losses.base import depth_loss
from densevit.losses.masked_reduction import Depth, Pool, Scalar, Valid, log_ratio, masked_mean, measured, rows


@depth_loss("l1")
def l1(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Mean absolute error, in metres."""
    pred, target, mask = measured(pred, target, valid)
    return masked_mean((pred - target).abs(), mask, pool)


@depth_loss("mse")
def mse(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Mean squared error, in square metres."""
    pred, target, mask = measured(pred, target, valid)
    return masked_mean((pred - target).square(), mask, pool)


@depth_loss("log_l1")
def log_l1(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Mean absolute error of the natural logarithm: a relative error, the same at every distance."""
    errors, mask = log_ratio(pred, target, valid)
    return masked_mean(errors.abs(), mask, pool)


@depth_loss("berhu")
def berhu(
    pred: Depth,
    target: Depth,
    valid: Valid,
    *,
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.2,
    pool: Pool = "image",
) -> Scalar:
    """Reverse Huber, in metres (Laina et al. 2016): |r| up to c, (r^2 + c^2) / 2c above it.

    c is `threshold` times the largest |r| of the image, of the micro-batch unless `pool` is image. It has no gradient:
    through c, the worst pixel would be pushed further out, to lower the loss of all others.

    Args:
        threshold: the error between the two, as a share of the largest error.
    """
    pred, target, mask = measured(pred, target, valid)
    errors = (pred - target).abs()
    c = threshold * rows(errors.detach(), pool).amax(1)
    c = c.clamp_min(1e-6).view(-1, 1, 1, 1)  # 0 for a perfect prediction
    square = (errors.square() + c.square()) / (2 * c)
    return masked_mean(torch.where(errors <= c, errors, square), mask, pool)
