"""Losses of depth: their interface, those that compare pixel by pixel, and of gradients."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from densevit.losses.reduction import (
    Depth,
    Eps,
    Pool,
    PooledLoss,
    Scalar,
    Valid,
    log_ratio,
    masked_mean,
    measured,
    over_step_centred,
    pooled_mean,
    rows,
)
from densevit.registry import Registry
from densevit.structures import DepthKind

F = TypeVar("F", bound=Callable[..., Any])


class DepthLoss(PooledLoss, ABC):
    """One number from a prediction and its ground truth; computed in fp32 for half precision.

    Value and gradient are finite on empty masks (then exactly 0, attached to the graph), perfect predictions, zeros,
    and NaN or infinite ground truth.

    Attributes:
        step: optimiser steps done, set by the trainer before each step; losses with a warm-up read it.
        clip_length: the images are clips of n frames, each one's consecutive; set likewise.
        depth_kinds: the kinds of ground truth that it can compare with; it is 0 for images of others.
    """

    step: int = 0
    clip_length: int = 1
    depth_kinds: frozenset[DepthKind] = frozenset({"metric"})

    @abstractmethod
    def forward(
        self, pred: Float[Tensor, "b 1 h w"], target: Float[Tensor, "b 1 h w"], valid: Bool[Tensor, "b 1 h w"]
    ) -> Float[Tensor, ""]: ...


DEPTH_LOSSES = Registry[DepthLoss]("depth loss")


class FunctionLoss(DepthLoss):
    """A loss that is a function of (pred, target, valid), and of `clip_length` if it takes one; options are bound."""

    def __init__(self, function: Callable[..., Scalar], depth_kinds: Iterable[DepthKind] = ("metric",)) -> None:
        super().__init__()
        self.function, self.depth_kinds = function, frozenset(depth_kinds)
        self.takes_clips = "clip_length" in inspect.signature(function).parameters
        self.pool = getattr(function, "keywords", {}).get("pool", "image")

    def forward(self, pred: Depth, target: Depth, valid: Valid) -> Scalar:
        clips = {"clip_length": self.clip_length} if self.takes_clips else {}
        return self.function(pred, target, valid, **clips)


def depth_loss(
    name: str, kinds: Callable[..., Iterable[DepthKind]] = lambda **options: ("metric",)
) -> Callable[[F], F]:
    """Register a function as a loss; its keyword-only parameters are the options. `kinds`: options -> `depth_kinds`."""

    def build(function: Callable[..., Scalar], **options: Any) -> FunctionLoss:
        return FunctionLoss(partial(function, **options), kinds(**options))

    return DEPTH_LOSSES.register_function(name, build, inputs=("clip_length",))


@depth_loss("l1")
def l1(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Return the mean absolute error, in metres."""
    pred, target, mask = measured(pred, target, valid)
    return masked_mean((pred - target).abs(), mask, pool)


@depth_loss("mse")
def mse(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Return the mean squared error, in square metres."""
    pred, target, mask = measured(pred, target, valid)
    return masked_mean((pred - target).square(), mask, pool)


@depth_loss("relative_l1")
def relative_l1(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Return the mean of |pred - target| / target, which is the score AbsRel: the L1 loss that is weighted by the
    inverse of the true depth, as MoGe (Wang et al. 2025) weights its own.

    Where the image leaves several depths possible, `l1` and `log_l1` learn their median, and this one a smaller depth.
    """
    pred, target, mask = measured(pred, target, valid)
    return masked_mean((pred - target).abs() / target, mask, pool)


@depth_loss("log_l1")
def log_l1(pred: Depth, target: Depth, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Return the mean absolute error of the natural logarithm: a relative error, the same at every distance."""
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
    """Return the reverse Huber, in metres (Laina et al. 2016): |r| up to c, (r^2 + c^2) / 2c above it.

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
    """Return sqrt(var(e) + (1 - variance_focus) mean(e)^2) of e = ln((pred + eps) / (target + eps)) (Eigen et al.
    2014).

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


Stride = Annotated[int, Field(ge=1)]


@depth_loss("gradient", lambda *, eps, **options: ("metric",) if eps else ("metric", "relative"))
def gradient(
    pred: Depth,
    target: Depth,
    valid: Valid,
    *,
    strides: Annotated[tuple[Stride, ...], Field(min_length=1)] = (1, 2, 4, 6),
    reach: Annotated[int, Field(ge=1)] = 2,
    eps: Eps = 0.0,
    pool: Pool = "image",
) -> Scalar:
    """Return the multi-scale gradient of ln((pred + eps) / (target + eps)) (MegaDepth, Li & Snavely 2018).

    Added to a loss of depth itself: dinov2 has 0.5 of it beside SigLoss, dinov2 and dinov3 with the default strides,
    differences between pixels two apart, and eps 1e-3.

    Args:
        strides: the scales; at stride s every s-th row and column is kept.
        reach: kept pixels from one end of a difference to the other.
        eps: metres added inside both logarithms; without it, predictions are clamped at 1e-3.
    """
    errors, mask = log_ratio(pred, target, valid, eps)
    return roughness(errors, mask, strides=strides, reach=reach, pool=pool)


def roughness(errors: Depth, mask: Valid, *, strides: Sequence[int], reach: int, pool: Pool) -> Scalar:
    """Return the sum over strides of the absolute differences of `errors` between pairs of measured pixels, per
    measured pixel. `strides`: at stride s every s-th row and column is kept; `reach`: kept pixels from one end of a
    difference to the other."""
    return torch.stack([_at_stride(errors[..., ::s, ::s], mask[..., ::s, ::s], reach, pool) for s in strides]).sum()


def _at_stride(errors: Depth, mask: Valid, reach: int, pool: Pool) -> Scalar:
    down = _differences(errors, mask, 2, reach)
    across = _differences(errors, mask, 3, reach)
    total = rows(down, pool).sum(1) + rows(across, pool).sum(1)
    return pooled_mean(total, rows(mask, pool).sum(1), pool)


def _differences(errors: Depth, mask: Valid, dim: int, reach: int) -> Float[Tensor, "b 1 _ _"]:
    """|difference| of each pair along a dimension; 0 where either end was not measured."""
    n = max(errors.shape[dim] - reach, 0)
    far, near = errors.narrow(dim, errors.shape[dim] - n, n), errors.narrow(dim, 0, n)
    both = mask.narrow(dim, errors.shape[dim] - n, n) & mask.narrow(dim, 0, n)
    return torch.where(both, far - near, 0.0).abs()
