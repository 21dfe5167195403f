"""Losses of surface normals. b images, h x w pixels; predictions and ground truth are unit vectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.losses.reduction import Pool, PooledLoss, Scalar, Valid, masked_mean
from densevit.registry import Registry

Normals: TypeAlias = Float[Tensor, "b 3 h w"]

EPS = 1e-12  # under the root: the gradient of a length is not defined at 0, which is a perfect prediction


class NormalsLoss(PooledLoss, ABC):
    """One number from predicted and true normals; 0, attached to the graph, where no normal is known."""

    step: int = 0  # optimiser steps done, set by the trainer before each step

    @abstractmethod
    def forward(self, pred: Normals, target: Normals, valid: Valid) -> Scalar: ...


NORMAL_LOSSES = Registry[NormalsLoss]("normals loss")


class FunctionLoss(NormalsLoss):
    """A loss that is a function of (pred, target, valid), with its options bound."""

    def __init__(self, function: Callable[..., Scalar], **options: Any) -> None:
        super().__init__()
        self.function = partial(function, **options)
        self.pool = options.get("pool", "image")

    def forward(self, pred: Normals, target: Normals, valid: Valid) -> Scalar:
        return self.function(pred, target, valid)


@NORMAL_LOSSES.register_function("angular", FunctionLoss)
def angular(pred: Normals, target: Normals, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Return the mean angle in radians, as atan2(|a x b|, a . b).

    acos(a . b) has an infinite gradient at 0 and 180 degrees, which is why others leave such pixels out.
    """
    pred, target, mask = unit_where_valid(pred, target, valid)
    sine = (torch.linalg.cross(pred, target, dim=1).square().sum(1, keepdim=True) + EPS).sqrt()
    angle = torch.atan2(sine, (pred * target).sum(1, keepdim=True))
    return masked_mean(torch.where(mask, angle, 0.0), mask, pool)


@NORMAL_LOSSES.register_function("l1", FunctionLoss)
def l1(pred: Normals, target: Normals, valid: Valid, *, pool: Pool = "image") -> Scalar:
    """Return the mean over pixels of the sum of the absolute differences of the components."""
    pred, target, mask = unit_where_valid(pred, target, valid)
    return masked_mean(torch.where(mask, (pred - target).abs().sum(1, keepdim=True), 0.0), mask, pool)


def unit_where_valid(pred: Normals, target: Normals, valid: Valid) -> tuple[Normals, Normals, Valid]:
    """Return both in fp32 or fp64, and the same unit vector where the truth is unknown; and the mask of where it is
    known."""
    mask = valid & target.isfinite().all(1, keepdim=True) & (target != 0).any(1, keepdim=True)
    full = torch.promote_types(pred.dtype, torch.float32)
    constant = -torch.eye(3, dtype=full, device=pred.device)[2][:, None, None]  # made there, so that no step waits
    return torch.where(mask, pred.to(full), constant), torch.where(mask, target.to(full), constant), mask
