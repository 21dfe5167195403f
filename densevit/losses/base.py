"""The interface of depth losses, and the names by which a config chooses them."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from densevit.losses.masked_reduction import Depth, Scalar, Valid
from densevit.registry import Registry


class DepthLoss(nn.Module, ABC):
    """One number from a prediction and its ground truth; computed in fp32 for half precision.

    Value and gradient are finite on empty masks (then exactly 0, attached to the graph), perfect predictions, zeros,
    and NaN or infinite ground truth.

    Attributes:
        step: optimiser steps done, set by the trainer before each step; losses with a warm-up read it.
    """

    step: int = 0

    @abstractmethod
    def forward(
        self, pred: Float[Tensor, "b 1 h w"], target: Float[Tensor, "b 1 h w"], valid: Bool[Tensor, "b 1 h w"]
    ) -> Float[Tensor, ""]: ...


DEPTH_LOSSES = Registry[DepthLoss]("depth loss")


class FunctionLoss(DepthLoss):
    """A loss that is a function of (pred, target, valid), with its options bound."""

    def __init__(self, function: Callable[..., Scalar]) -> None:
        super().__init__()
        self.function = function

    def forward(self, pred: Depth, target: Depth, valid: Valid) -> Scalar:
        return self.function(pred, target, valid)
