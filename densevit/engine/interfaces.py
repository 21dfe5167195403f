"""What the training loop asks of data loaders, and of parts of a model that change over a run."""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from densevit.structures import Batch


@runtime_checkable
class Batches(Protocol):
    """An endless iterator that may hold processes until it is closed; any generator is one."""

    def __next__(self) -> Batch: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def close(self) -> None: ...


@runtime_checkable
class CountsDraws(Protocol):
    """Batches of a mixture, which know how often each of its data sets was drawn."""

    def drawn(self, samples: int) -> Mapping[str, int]:
        """Of the first so many samples of the run, over all processes."""


@runtime_checkable
class Validation(Protocol):
    """The validation images of this process, each once, and their number over all processes."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Scheduled(Protocol):
    """A part of a model that changes over a run; nothing of it is saved, a resumed run calls it anew."""

    def on_train_step(self, progress: float) -> None:
        """Called before each step with the share of the run's steps that is done, from 0 to 1."""
