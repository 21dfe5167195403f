"""Work that is timed in a process of its own, where nobody else has warmed or worn the allocator and the threads."""

import multiprocessing
from collections.abc import Callable
from functools import partial
from typing import Any

from densevit.benchmarking.turns import Work, clock


def seconds_alone(prepare: Callable[..., Work], *args: Any) -> float:
    """How long the work takes in a fresh process.

    Args:
        prepare: makes ready, outside the measurement, and returns the work; a function that a fresh process can import.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (prepare, args))


def _measure(prepare: Callable[..., Work], args: tuple[Any, ...]) -> float:
    return clock(prepare(*args))


def each_alone(contestants: dict[str, Callable[..., Work]], *args: Any) -> dict[str, Callable[[], float]]:
    """The contestants as functions that tell their own seconds."""
    return {name: partial(seconds_alone, prepare, *args) for name, prepare in contestants.items()}


def told(contestant: Work) -> float:
    """The clock of those who tell their seconds themselves."""
    seconds = contestant()
    assert isinstance(seconds, float)
    return seconds
