"""A loss made of a pure function: what is left of a class when the formula stands by itself."""

from collections.abc import Callable

from densevit.losses.loss import DepthLoss
from densevit.losses.pooling import Depth, Scalar, Valid


class FunctionLoss(DepthLoss):
    """Calls a function of (pred, target, valid) whose options are already bound."""

    def __init__(self, function: Callable[..., Scalar]) -> None:
        super().__init__()
        self.function = function

    def forward(self, pred: Depth, target: Depth, valid: Valid) -> Scalar:
        return self.function(pred, target, valid)
