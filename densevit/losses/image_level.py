"""Losses of predictions for whole images: classes and focal lengths. b images, k classes.

A class is NO_LABEL where it is unknown; a focal length is a share of the image's width, NaN where unknown.
"""

from abc import ABC, abstractmethod
from typing import Annotated

import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.losses.reduction import PooledLoss, mean_over_step
from densevit.registry import Registry
from densevit.structures import NO_LABEL


class ClassLoss(PooledLoss, ABC):
    """One number from logits and classes; computed in fp32. Exactly 0, attached to the graph, if no class is known."""

    pool = "batch"

    @abstractmethod
    def forward(self, logits: Float[Tensor, "b k"], target: Int64[Tensor, " b"]) -> Float[Tensor, ""]: ...


CLASS_LOSSES = Registry[ClassLoss]("classification loss")


@CLASS_LOSSES.register("cross_entropy")
class CrossEntropy(ClassLoss):
    """Cross entropy of the softmax: the mean of -ln p(class) over the images whose class is known."""

    def __init__(self, *, label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0) -> None:
        """
        Args:
            label_smoothing: probability that is spread evenly over all classes (Szegedy et al. 2016).
        """
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(self, logits: Float[Tensor, "b k"], target: Int64[Tensor, " b"]) -> Float[Tensor, ""]:
        smoothing = self.label_smoothing
        total = F.cross_entropy(
            logits.float(), target, ignore_index=NO_LABEL, label_smoothing=smoothing, reduction="sum"
        )
        return mean_over_step(total, (target != NO_LABEL).sum())


class FocalLoss(PooledLoss, ABC):
    """One number from estimated and true focal lengths; exactly 0, attached to the graph, if none is known."""

    pool = "batch"

    @abstractmethod
    def forward(self, prediction: Float[Tensor, " b"], target: Float[Tensor, " b"]) -> Float[Tensor, ""]: ...


FOCAL_LOSSES = Registry[FocalLoss]("focal length loss")


@FOCAL_LOSSES.register("log_l1")
class LogL1(FocalLoss):
    """Mean of |ln(prediction / target)|: a lens twice as long is as wrong as one half as long."""

    def forward(self, prediction: Float[Tensor, " b"], target: Float[Tensor, " b"]) -> Float[Tensor, ""]:
        valid = target.isfinite() & (target > 0)
        ratio = prediction.float().log() - target.where(valid, 1.0).float().log()
        return mean_over_step((ratio.abs() * valid).sum(), valid.sum())
