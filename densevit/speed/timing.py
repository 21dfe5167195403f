"""Timing: implementations run in turns, so that a machine that slows down slows all of them alike.

What an allocator or threads could falsify runs in a fresh process.
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, TypeVar

import torch

T = TypeVar("T")
Work = Callable[[], object]


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)

    def map(self, change: Callable[[float], float]) -> "Spread":
        """Return the spread of a monotonic function of the values; the quartiles change places where it falls."""
        low, high = sorted((change(self.low), change(self.high)))
        return Spread(change(self.middle), low, high)


class Seconds(NamedTuple):
    """By the clock, and of this process's processor time, which other programs on the machine stretch less."""

    wall: float
    processor: float


def time_once(work: Work) -> Seconds:
    synchronize()
    wall, processor = time.perf_counter(), time.process_time()
    work()
    synchronize()
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)


def synchronize() -> None:
    """Wait for a GPU to finish its queue."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Rounds:
    """Seconds of each implementation in each round, by both clocks."""

    wall: dict[str, list[float]]
    processor: dict[str, list[float]]

    @classmethod
    def of(cls, seconds: Mapping[str, list[Seconds]]) -> "Rounds":
        rounds = cls({}, {})
        for name, values in seconds.items():
            rounds.add(name, values)
        return rounds

    def add(self, name: str, seconds: Sequence[Seconds]) -> None:
        self.wall[name], self.processor[name] = [s.wall for s in seconds], [s.processor for s in seconds]


def time_interleaved(
    implementations: Mapping[str, Work], rounds: int, *, warmup: int = 1, timer: Callable[[Work], Any] = time_once
) -> Rounds:
    """Time each implementation once a round; every other round runs in reverse order. `warmup`: untimed
    rounds before, which choose kernels and fill caches; `timer`: returns the `Seconds` that some work takes."""
    for _ in range(warmup):
        for work in implementations.values():
            work()
    rounds_of: dict[str, list[Seconds]] = {name: [] for name in implementations}
    order = list(implementations)
    for index in range(rounds):
        for name in order if index % 2 == 0 else order[::-1]:
            rounds_of[name].append(timer(implementations[name]))
    return Rounds.of(rounds_of)


def speedup(seconds: Mapping[str, list[float]], name: str, baseline: str) -> Spread:
    """Return how many times faster than the baseline, round by round."""
    return Spread.of([theirs / ours for theirs, ours in zip(seconds[baseline], seconds[name], strict=True)])


Prepare = Callable[..., Work]
"""Does what shall not be measured, and returns the work; a function that a fresh process can import."""

STATUS = Path("/proc/self/status")


def time_in_subprocess(prepare: Prepare, *args: Any) -> Seconds:
    """Time the work in a fresh process."""
    return _run(_time, prepare, args)


def peak_memory_growth(prepare: Prepare, *args: Any) -> float | None:
    """Return MB by which the peak memory of a fresh process grows over two runs of the work; None outside of Linux."""
    return _run(_measure_memory, prepare, args) if STATUS.exists() else None


def _run(measure: Callable[[Prepare, tuple[Any, ...]], T], prepare: Prepare, args: tuple[Any, ...]) -> T:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (prepare, args))


def _time(prepare: Prepare, args: tuple[Any, ...]) -> Seconds:
    return time_once(prepare(*args))


def _measure_memory(prepare: Prepare, args: tuple[Any, ...]) -> float:
    work = prepare(*args)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = megabytes("VmRSS")
    work()
    work()
    return megabytes("VmHWM") - before


def megabytes(field: str) -> float:
    """Return the memory that this process has (`VmRSS`), or had at its peak (`VmHWM`)."""
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(field))
