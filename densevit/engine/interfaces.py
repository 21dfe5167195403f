"""What the loop asks of the things that it is handed; it knows none of their kinds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from densevit.structures import Batch

Scores = dict[str, float]


@runtime_checkable
class Objective(Protocol):
    """What the loop asks of a task."""

    best: tuple[str, Literal["min", "max"]]

    def losses(
        self, prediction: Tensor, batch: Batch, step: int, extras: Mapping[str, Tensor]
    ) -> dict[str, Tensor]: ...
    def rows(self, prediction: Tensor, batch: Batch) -> list[Scores]: ...
    def summary(self, rows: Sequence[Scores]) -> Scores: ...
    def panel(self, prediction: Tensor, batch: Batch) -> Any: ...


@runtime_checkable
class Batches(Protocol):
    """An endless iterator that may hold processes until it is closed; any generator is one."""

    def __next__(self) -> Batch: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def close(self) -> None: ...


@runtime_checkable
class Validation(Protocol):
    """The validation images of this process, each once, and their number over all processes."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Scheduled(Protocol):
    """A part of the model that changes over a run."""

    def on_train_step(self, progress: float) -> None:
        """Called before each step with the share of the run's steps that is done, from 0 to 1."""


def scheduled_parts(model: nn.Module) -> list[Scheduled]:
    """Nothing of them is saved: a resumed run tells them anew."""
    return [module for module in model.modules() if isinstance(module, Scheduled)]
