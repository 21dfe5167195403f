"""Negative log likelihood of depth errors under a Laplace distribution. b images, h x w pixels."""

from typing import Literal

import torch

from densevit.losses.masked_reduction import Depth, Pool, Scalar, Valid, log_ratio, masked_mean
from densevit.losses.ssi import aligned_error

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
    """Mean of |e| / b + ln b + 7 (Kendall and Gal 2017), with e the error of `pred` and b its predicted scale.

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
