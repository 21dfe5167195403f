"""Work that is timed in a process of its own, where nobody else has warmed or worn the allocator and the threads."""

import multiprocessing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from densevit.benchmark.interleaved_timing import Work, clock


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


Prepared = Callable[..., Callable[[], object]]
"""Makes ready, outside the measurement, and returns the work."""

STATUS = Path("/proc/self/status")


def peak_growth(prepare: Prepared, *args: Any) -> float | None:
    """MB by which the peak of a fresh process grows over two runs of the work; None where the system does not say.

    Args:
        prepare: a function that a fresh process can import.
    """
    if not STATUS.exists():
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure_memory, (prepare, args))


def _measure_memory(prepare: Prepared, args: tuple[Any, ...]) -> float:
    work = prepare(*args)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of getting ready
    before = status("VmRSS")
    work()
    work()
    return status("VmHWM") - before


def status(what: str) -> float:
    """MB that this process holds (`VmRSS`), or held at its peak (`VmHWM`)."""
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(what))
