"""The interface of tasks, and the names by which a config chooses them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from torch import Tensor, nn

from densevit.model_card import HeadSpec, Kind
from densevit.registry import ComponentConfig, ComponentSpec, Registry
from densevit.structures import Batch, Row

Extras = Mapping[str, Tensor]
"""What decoder and head give to the losses beside the prediction, in training."""

NO_EXTRAS: Extras = MappingProxyType({})


class Task(nn.Module, ABC):
    """Losses, scores and logged images of one head's prediction.

    Args:
        output: what the head's numbers mean.
        losses: name, weight, loss.
        score: prediction and ground truth of one image -> its row, empty without ground truth.
        aggregate: the rows of a data set -> one.

    Attributes:
        name: the head that it trains.
        best: the score that picks the best checkpoint, and its direction.
        kinds: the kinds of heads that it can train.
        loss_registry: the losses that it can have.
        default_losses: the losses of a config that names none.
        directions: other scores that may pick it.
    """

    name: str
    best: tuple[str, Literal["min", "max"]]
    kinds: ClassVar[tuple[Kind, ...]]
    loss_registry: ClassVar[Registry[Any]]
    default_losses: ClassVar[Sequence[ComponentConfig]]
    directions: ClassVar[Mapping[str, Literal["min", "max"]]] = {}

    def __init__(
        self,
        name: str,
        output: HeadSpec,
        losses: Sequence[tuple[str, float, Any]],
        score: Callable[..., dict[str, Any]],
        aggregate: Callable[[Sequence[Any]], Row],
    ) -> None:
        super().__init__()
        self.name, self.output, self.score, self.aggregate = name, output, score, aggregate
        self.weights = [(key, weight) for key, weight, _ in losses]
        self.criteria: Any = nn.ModuleList(loss for _, _, loss in losses)

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[Any]) -> frozenset[str]:
        """Return the kinds of ground truth that the losses learn from, as `truth` of a mixture's sources names them,
        `camera`, or `image labels` and `segments`, which `truth` calls labels, too."""
        return frozenset({"labels"})

    def scored_kinds(self) -> frozenset[str]:
        """Return the kinds of ground truth that the prediction is scored by."""
        return self.ground_truth_kinds([])

    def weighted_losses(self, step: int, *inputs: Any) -> dict[str, Tensor]:
        """Return each loss of the inputs times its weight; losses of one name are summed."""
        terms: dict[str, Tensor] = {}
        for (name, weight), loss in zip(self.weights, self.criteria, strict=True):
            loss.step = step
            terms[name] = terms.get(name, 0) + weight * loss(*inputs)
        return terms

    def prediction(self, predictions: Mapping[str, Tensor]) -> Any:
        """Return what is scored and shown, from all that the model predicts; by default the map of the head."""
        return predictions[self.name].float()

    @abstractmethod
    def losses(self, prediction: Tensor, batch: Batch, step: int, extras: Extras = NO_EXTRAS) -> dict[str, Tensor]:
        """Return the named and weighted losses; exactly 0 where the batch has no ground truth. `step`: optimiser steps
        done."""

    @abstractmethod
    def image_scores(self, prediction: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the scores of each image of the batch, in order; an empty row for an image without ground truth."""

    def dataset_scores(self, rows: Sequence[dict[str, Any]]) -> Row:
        """Return the scores of a data set from those of its images that have ground truth."""
        scored = [row for row in rows if row]
        return self.aggregate(scored) if scored else {}

    @abstractmethod
    def panel(self, prediction: Any, batch: Batch) -> UInt8[np.ndarray, "h w 3"]:
        """Return the image, ground truth, prediction and error side by side, for TensorBoard."""


def extras_of(head: str, predictions: Mapping[str, Tensor]) -> Extras:
    """Return what the model gives to the losses of one head beside its prediction."""
    return {key.partition("/")[2]: value for key, value in predictions.items() if key.startswith(f"{head}/")}


TASKS = Registry[Task]("task")


def task_class(spec: ComponentSpec[Any]) -> type[Task]:
    """Return what the head of a config's task is trained by."""
    assert isinstance(spec.component, type) and issubclass(spec.component, Task)
    return spec.component
