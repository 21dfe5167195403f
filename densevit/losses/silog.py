"""Scale-invariant log error (SILog, SigLoss)."""

from functools import partial
from typing import Annotated

import torch
from pydantic import Field

from densevit.losses.base import DEPTH_LOSSES, FunctionLoss
from densevit.losses.masked_reduction import Depth, Eps, Pool, Scalar, Valid, log_ratio, rows
from densevit.losses.step_totals import over_step_centred
from densevit.structures import DepthKind

EPS = 1e-12  # under the root: the gradient of sqrt is infinite at 0, which is a perfect prediction


def silog(
    pred: Depth,
    target: Depth,
    valid: Valid,
    *,
    variance_focus: float = 0.85,
    unbiased: bool = False,
    scale_only: bool = False,
    eps: float = 0.0,
    pool: Pool = "image",
) -> Scalar:
    """sqrt(var(e) + (1 - variance_focus) mean(e)^2) of e = ln((pred + eps) / (target + eps)) (Eigen et al. 2014).

    variance_focus 1 ignores a global scale, 0 is the log RMSE. The published losses, written with
    mean(e^2) - f mean(e)^2 = var(e) + (1 - f) mean(e)^2:

    - bts, ZoeDepth: variance_focus 0.85 (and a weight of 10);
    - Depth Anything V2: variance_focus 0.5;
    - SigLoss of the Monocular-Depth-Estimation-Toolbox, dinov2 and dinov3: variance_focus 0.85, unbiased, eps 1e-3.

    Args:
        unbiased: divide the variance by n - 1.
        scale_only: leave the variance out, as SigLoss does in its first steps.
        eps: metres added inside both logarithms.
    """
    errors, mask = (rows(pixels, pool) for pixels in log_ratio(pred, target, valid, eps))
    n = mask.sum(1)
    mean = errors.sum(1) / n.clamp_min(1)
    # Centred: mean(e^2) - mean(e)^2 comes out negative in fp32 where the errors are nearly constant.
    squares = torch.where(mask, errors - mean[:, None], 0.0).square().sum(1)
    if pool == "batch":
        n, mean, squares = over_step_centred(n, mean, squares)
    square = (1 - variance_focus) * mean.square()
    if not scale_only:
        square = square + squares / (n - int(unbiased)).clamp_min(1)
    return torch.where(n > 0, (square + EPS).sqrt(), 0.0).mean().to(errors.dtype)


@DEPTH_LOSSES.register("silog")
class SILog(FunctionLoss):
    """Scale-invariant log error; the docstring of the function `silog` lists the options of published losses.

    Args:
        variance_focus: 1 ignores a global scale, 0 is the log RMSE; bts has 0.85 and a weight of 10, Depth Anything V2
            0.5.
        unbiased: divide the variance by n - 1, as SigLoss does.
        warmup: optimiser steps for which the error is sqrt((1 - variance_focus) mean(e)^2) alone: the variance is
            unstable while predictions are far off (SigLoss: 100).
        eps: metres added inside both logarithms (SigLoss: 1e-3); without it, predictions are clamped at 1e-3.
    """

    sums_predictions = True

    def __init__(
        self,
        *,
        variance_focus: Annotated[float, Field(ge=0, le=1)] = 0.85,
        unbiased: bool = False,
        warmup: Annotated[int, Field(ge=0)] = 0,
        eps: Eps = 0.0,
        pool: Pool = "image",
    ) -> None:
        kinds: tuple[DepthKind, ...] = ("metric",) if variance_focus < 1 or eps else ("metric", "relative")
        super().__init__(partial(silog, variance_focus=variance_focus, unbiased=unbiased, eps=eps, pool=pool), kinds)
        self.warmup = warmup

    def forward(self, pred: Depth, target: Depth, valid: Valid) -> Scalar:
        return self.function(pred, target, valid, scale_only=self.step < self.warmup)
