"""Contestants take turns, so that a machine that slows down slows all of them; what counts is their ratio in a turn."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles

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
        """The same of another quantity; one that falls as this rises turns the quartiles over."""
        low, high = sorted((change(self.low), change(self.high)))
        return Spread(change(self.middle), low, high)


def clock(work: Work) -> float:
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def wait() -> None:
    """Lets a GPU finish what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def take_turns(
    contestants: Mapping[str, Work], rounds: int, *, warm: int = 1, clock: Callable[[Work], float] = clock
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round; every other round runs backwards, so that nobody is always first.

    Args:
        warm: untimed rounds before, which choose kernels and fill caches.
        clock: tells how long some work takes.
    """
    for _ in range(warm):
        for work in contestants.values():
            work()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    for turn in range(rounds):
        for name in order if turn % 2 == 0 else order[::-1]:
            seconds[name].append(clock(contestants[name]))
    return seconds


def times_faster(seconds: Mapping[str, list[float]], name: str, baseline: str) -> Spread:
    """How many times faster than the baseline, turn by turn."""
    return Spread.of([theirs / ours for theirs, ours in zip(seconds[baseline], seconds[name], strict=True)])
