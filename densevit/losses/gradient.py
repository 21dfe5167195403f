"""Multi-scale gradient losses, which sharpen edges and smooth surfaces."""

from collections.abc import Sequence
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from densevit.losses.depth import depth_loss
from densevit.losses.reduction import Depth, Eps, Pool, Scalar, Valid, log_ratio, pooled_mean, rows

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
    """Multi-scale gradient of the log error ln((pred + eps) / (target + eps)) (MegaDepth, Li & Snavely 2018).

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
    """Sum over strides of the absolute differences of `errors` between pairs of measured pixels, per measured pixel.
    `strides`: at stride s every s-th row and column is kept; `reach`: kept pixels from one end of a difference to the
    other."""
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
