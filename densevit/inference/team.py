"""Several processes, on one machine or many, that share one list of images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Team(Protocol):
    """What an export asks of the processes around it; `engine.distributed.World` is one."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def gather(self, value: Any) -> list[Any]: ...
    def on_main(self, work: Callable[[], T]) -> T: ...


@dataclass(frozen=True)
class Alone:
    """A team of one."""

    rank: int = 0
    size: int = 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def on_main(self, work: Callable[[], T]) -> T:
        return work()


ALONE = Alone()


def dealt(items: Sequence[T], size: int, team: Team) -> list[Sequence[T]]:
    """This process' groups of `size` neighbours: every so many-th of the whole list."""
    groups = [items[i : i + size] for i in range(0, len(items), size)]
    return groups[team.rank :: team.size]
