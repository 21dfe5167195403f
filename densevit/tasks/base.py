"""What the trainer may ask of any task, and the names a config may use for them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from torch import Tensor, nn

from densevit.model_card import HeadSpec, Kind
from densevit.registry import ComponentConfig, Registry
from densevit.structures import Batch

Row = dict[str, float]

Extras = Mapping[str, Tensor]
"""What decoder and head hand to the losses beside the prediction, in training."""

NO_EXTRAS: Extras = MappingProxyType({})


class Task(nn.Module, ABC):
    """Objective, scores and pictures of one head's prediction.

    Attributes:
        name: the head it belongs to.
        best: the score that picks the best checkpoint, and its direction.
        kinds: the heads it can teach, by what their numbers mean.
        objectives: the registry that its losses come from.
        usual: the losses of a config that names none.
    """

    name: str
    best: tuple[str, Literal["min", "max"]]
    kinds: ClassVar[tuple[Kind, ...]]
    objectives: ClassVar[Registry[Any]]
    usual: ClassVar[Sequence[ComponentConfig]]

    def __init__(
        self,
        name: str,
        output: HeadSpec,
        losses: Sequence[tuple[str, float, Any]],
        score: Callable[..., Row],
        mean: Callable[[Sequence[Row]], Row],
    ) -> None:
        super().__init__()
        self.name, self.output, self.score, self.mean = name, output, score, mean
        self.weights = [(key, weight) for key, weight, _ in losses]
        self.criteria = [loss for _, _, loss in losses]

    def weighted(self, step: int, *given: Any) -> dict[str, Tensor]:
        """Each loss of what it is `given`, times its weight; losses of one name are summed."""
        terms: dict[str, Tensor] = {}
        for (name, weight), loss in zip(self.weights, self.criteria, strict=True):
            loss.step = step
            terms[name] = terms.get(name, 0) + weight * loss(*given)
        return terms

    @abstractmethod
    def losses(self, prediction: Tensor, batch: Batch, step: int, extras: Extras = NO_EXTRAS) -> dict[str, Tensor]:
        """Named terms, already weighted; their sum is the objective, and exactly 0 where the batch has no truth.

        Args:
            step: optimiser steps done.
        """

    @abstractmethod
    def rows(self, prediction: Tensor, batch: Batch) -> list[Row]:
        """The scores of each image of the batch, in order; an image without truth gives an empty row."""

    @abstractmethod
    def summary(self, rows: Sequence[Row]) -> Row:
        """The scores of a data set from those of its images."""

    @abstractmethod
    def panel(self, prediction: Tensor, batch: Batch) -> UInt8[np.ndarray, "h w 3"]:
        """Image, truth, prediction and error side by side, for TensorBoard."""


TASKS = Registry[Task]("task")
