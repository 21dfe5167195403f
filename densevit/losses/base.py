"""The interface of depth losses, and the names by which a config chooses them."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from jaxtyping import Bool, Float
from torch import Tensor

from densevit.losses.masked_reduction import Depth, PooledLoss, Scalar, Valid
from densevit.registry import Registry
from densevit.structures import DepthKind

F = TypeVar("F", bound=Callable[..., Any])


class DepthLoss(PooledLoss, ABC):
    """One number from a prediction and its ground truth; computed in fp32 for half precision.

    Value and gradient are finite on empty masks (then exactly 0, attached to the graph), perfect predictions, zeros,
    and NaN or infinite ground truth.

    Attributes:
        step: optimiser steps done, set by the trainer before each step; losses with a warm-up read it.
        clip_length: the images are clips of so many frames, each one's consecutive; set likewise.
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
