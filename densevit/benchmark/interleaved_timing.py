"""Interleaved timing: implementations run in turns, so that a machine that slows down slows all of them alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

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
        """The spread of a monotonic function of the values; the quartiles change places where it falls."""
        low, high = sorted((change(self.low), change(self.high)))
        return Spread(change(self.middle), low, high)


def time_once(work: Work) -> float:
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    """Waits for a GPU to finish its queue."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_interleaved(
    implementations: Mapping[str, Work], rounds: int, *, warmup: int = 1, timer: Callable[[Work], Any] = time_once
) -> dict[str, list[float]]:
    """Seconds of each implementation in each round; every other round runs in reverse order.

    Args:
        warmup: untimed rounds before, which choose kernels and fill caches.
        timer: returns the seconds that some work takes.
    """
    for _ in range(warmup):
        for work in implementations.values():
            work()
    seconds: dict[str, list[float]] = {name: [] for name in implementations}
    order = list(implementations)
    for index in range(rounds):
        for name in order if index % 2 == 0 else order[::-1]:
            seconds[name].append(timer(implementations[name]))
    return seconds


def speedup(seconds: Mapping[str, list[float]], name: str, baseline: str) -> Spread:
    """How many times faster than the baseline, round by round."""
    return Spread.of([theirs / ours for theirs, ours in zip(seconds[baseline], seconds[name], strict=True)])
