"""What the trainer may ask of any task, and the names a config may use for them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from torch import Tensor, nn

from densevit.registry import Part, Registry
from densevit.structures import Batch, Kind

Row = dict[str, float]


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
    usual: ClassVar[Sequence[Part]]

    @abstractmethod
    def losses(self, prediction: Tensor, batch: Batch, step: int) -> dict[str, Tensor]:
        """Named terms, already weighted; their sum is the objective. `step`: optimiser steps done."""

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
