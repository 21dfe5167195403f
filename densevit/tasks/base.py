"""The interface of tasks, and the names by which a config chooses them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from densevit.model_card import HeadSpec, Kind
from densevit.registry import ComponentConfig, ComponentSpec, Registry
from densevit.structures import Batch, Row

Extras = Mapping[str, Tensor]
"""What decoder and head give to the losses beside the prediction, in training."""

NO_EXTRAS: Extras = MappingProxyType({})

NO_SOURCE = "."  # no source has this name


class Task(nn.Module, ABC):
    """Losses, scores and logged images of one head's prediction.

    Attributes:
        name: the head that it trains.
        best: the score that picks the best checkpoint, and its direction.
        kinds: the kinds of heads that it can train.
        loss_registry: the losses that it can have.
        default_losses: the losses of a config that names none.
        directions: other scores that may pick it.
        sources: of a mixture, the data sets that it learns from; empty where there is none.
        only: of the data sets of a mixture, those that it learns from and is scored on by the config; empty: all.
        share: of the draws of a mixture that it learns from. Its losses are divided by it, so that they are means over
            images that teach it, in any split of a step over processes.
        scores: of single data sets of a mixture, in place of `score`.
        drop_worst: data set of a mixture -> share of each image's pixels, those with the largest error, that is not
            learned from.
        confidence: data set of a mixture without ground truth, for which a teacher makes it in each step -> how sure
            that must be.
        teachable: whether it learns from a teacher so.
    """

    name: str
    best: tuple[str, Literal["min", "max"]]
    kinds: ClassVar[tuple[Kind, ...]]
    loss_registry: ClassVar[Registry[Any]]
    default_losses: ClassVar[Sequence[ComponentConfig]]
    directions: ClassVar[Mapping[str, Literal["min", "max"]]] = {}
    sources: Collection[str] = ()
    only: Collection[str] = ()
    share: float = 1.0
    drop_worst: Mapping[str, float] = MappingProxyType({})
    confidence: Mapping[str, float] = MappingProxyType({})
    teachable: ClassVar[bool] = False

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
        self.criteria: Any = nn.ModuleList(loss for _, _, loss in losses)
        self.scores: Mapping[str, Callable[..., Row]] = {}

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[Any]) -> frozenset[str]:
        """The kinds of ground truth that losses learn from, as `truth` of a mixture's sources names them."""
        return frozenset({"labels"})

    def losses_by_source(
        self, prediction: Tensor, batch: Batch, step: int, extras: Extras = NO_EXTRAS
    ) -> dict[str, dict[str, Tensor]]:
        """`losses` of the images of each data set of a mixture; the whole batch, without a name, where there is none.

        A data set that it does not learn from is left out.
        """
        found = {}
        for source, rows in batch.by_source().items():
            if source in self.sources or not source:
                whole = len(rows) == len(batch)
                of_part = {k: v[rows] if v.ndim > 2 and not whole else v for k, v in extras.items()}
                part = prediction if whole else prediction[rows]
                taken = batch.take(rows)
                known = self.known_share(taken) if source in self.confidence else None
                if share := self.drop_worst.get(source, 0.0):
                    taken = self.without_worst(part, taken, share)
                if known is None:
                    found[source] = self.losses(part, taken, step, of_part)
                else:
                    found[source] = self._scaled_losses(part, taken, step, of_part, known)
        if not found:  # every loss all the same, as 0, so that all processes have the same ones
            unknown = replace(batch, depth=None, valid=None, labels=None, label=None, normals=None)
            found[NO_SOURCE] = self.losses(prediction, unknown, step, extras)
        return found

    def _scaled_losses(
        self, prediction: Tensor, batch: Batch, step: int, extras: Extras, known: Float[Tensor, "b"]
    ) -> dict[str, Tensor]:
        """The mean over images of each one's losses times the share of its pixels that have ground truth, so that few
        sure pixels count little (UniMatch divides by all pixels, too)."""
        terms: dict[str, Tensor] = {}
        for i, share in enumerate(known / len(batch)):
            of_image = {k: v[i : i + 1] if v.ndim > 2 else v for k, v in extras.items()}
            found = self.losses(prediction[i : i + 1], batch.take([i]), step, of_image)
            terms = {name: terms.get(name, 0) + share * loss for name, loss in found.items()}
        return terms

    def known_share(self, batch: Batch) -> Float[Tensor, "b"] | None:
        """Of each image, the share of its pixels of which a teacher was sure; None where that does not count."""
        return None

    def with_pseudo_labels(self, batch: Batch, rows: Sequence[int], prediction: Tensor) -> Batch:
        """The batch with a teacher's prediction for the images of `rows` as their ground truth."""
        return batch

    def without_worst(self, prediction: Tensor, batch: Batch, share: float) -> Batch:
        """The batch without the ground truth of each image's pixels of the largest error; for tasks of pixels."""
        return batch

    def joined_losses(
        self, found: Mapping[str, Mapping[str, Tensor]], prediction: Tensor, batch: Batch
    ) -> dict[str, Tensor]:
        """The losses of a batch from those of its data sets, each by its share of the images that teach this task."""
        if "" in found:
            return dict(found[""])
        rows = batch.by_source()
        none = prediction[:0].sum().float()  # 0, and attached to the graph
        terms = dict.fromkeys((name for name, _ in self.weights), none)
        for source, losses in found.items():
            part = len(rows.get(source, ())) / (len(batch) * self.share)
            terms |= {name: terms.get(name, none) + part * loss for name, loss in losses.items()}
        return terms

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


def extras_of(head: str, predictions: Mapping[str, Tensor]) -> Extras:
    """Return what the model gives to the losses of one head beside its prediction."""
    return {key.partition("/")[2]: value for key, value in predictions.items() if key.startswith(f"{head}/")}


TASKS = Registry[Task]("task")


def default_selection_metric(tasks: Mapping[str, Task]) -> tuple[str, Literal["min", "max"]]:
    """Return the score of the first task that picks the best checkpoint, and its direction."""
    name, task = next(iter(tasks.items()))
    score, direction = task.best
    return score if len(tasks) == 1 else f"{name}/{score}", direction


def task_class(spec: ComponentSpec[Any]) -> type[Task]:
    """What the head of a config's task is trained by."""
    assert isinstance(spec.component, type) and issubclass(spec.component, Task)
    return spec.component
