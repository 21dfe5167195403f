"""The interface of tasks, and the names by which a config chooses them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from torch import Tensor, nn

from densevit.model_card import HeadSpec, Kind
from densevit.registry import ComponentConfig, Registry
from densevit.structures import Batch, Row

Extras = Mapping[str, Tensor]
"""What decoder and head give to the losses beside the prediction, in training."""

NO_EXTRAS: Extras = MappingProxyType({})


class Task(nn.Module, ABC):
    """Losses, scores and logged images of one head's prediction.

    Attributes:
        name: the head that it trains.
        best: the score that picks the best checkpoint, and its direction.
        kinds: the kinds of heads that it can train.
        loss_registry: the losses that it can have.
        default_losses: the losses of a config that names none.
    """

    name: str
    best: tuple[str, Literal["min", "max"]]
    kinds: ClassVar[tuple[Kind, ...]]
    loss_registry: ClassVar[Registry[Any]]
    default_losses: ClassVar[Sequence[ComponentConfig]]

    def __init__(
        self,
        name: str,
        output: HeadSpec,
        losses: Sequence[tuple[str, float, Any]],
        score: Callable[..., Row],
        aggregate: Callable[[Sequence[Row]], Row],
    ) -> None:
        super().__init__()
        self.name, self.output, self.score, self.aggregate = name, output, score, aggregate
        self.weights = [(key, weight) for key, weight, _ in losses]
        self.criteria = [loss for _, _, loss in losses]

    def weighted_losses(self, step: int, *inputs: Any) -> dict[str, Tensor]:
        """Each loss of the inputs times its weight; losses of one name are summed."""
        terms: dict[str, Tensor] = {}
        for (name, weight), loss in zip(self.weights, self.criteria, strict=True):
            loss.step = step
            terms[name] = terms.get(name, 0) + weight * loss(*inputs)
        return terms

    @abstractmethod
    def losses(self, prediction: Tensor, batch: Batch, step: int, extras: Extras = NO_EXTRAS) -> dict[str, Tensor]:
        """Named and weighted losses; exactly 0 where the batch has no ground truth.

        Args:
            step: optimiser steps done.
        """

    @abstractmethod
    def image_scores(self, prediction: Tensor, batch: Batch) -> list[Row]:
        """The scores of each image of the batch, in order; an empty row for an image without ground truth."""

    @abstractmethod
    def dataset_scores(self, rows: Sequence[Row]) -> Row:
        """The scores of a data set from those of its images."""

    @abstractmethod
    def panel(self, prediction: Tensor, batch: Batch) -> UInt8[np.ndarray, "h w 3"]:
        """Image, ground truth, prediction and error side by side, for TensorBoard."""


TASKS = Registry[Task]("task")
