"""How long the maps of a stream take, and how much memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import numpy as np

from densevit.utils.process import peak_memory

T = TypeVar("T")


@dataclass
class Latency:
    """Measures a stream that it is handed; `print(latency)` at any time.

    >>> latency = Latency()
    >>> maps = list(latency.of(iter("abc")))
    >>> len(latency.seconds), latency.seconds[0] >= 0
    (3, True)

    Attributes:
        seconds: from asking for each map to having it, the wait for its frame included.
    """

    seconds: list[float] = field(default_factory=list)

    def of(self, maps: Iterable[T]) -> Iterator[T]:
        """Yield the maps of a stream, and note how long each took."""
        stream, start = iter(maps), perf_counter()
        for each in stream:
            self.seconds.append(perf_counter() - start)
            yield each
            start = perf_counter()

    def __str__(self) -> str:
        if not self.seconds:
            return "no maps yet"
        # The first one builds what the others use.
        median, p95 = 1e3 * np.percentile(self.seconds[1:] or self.seconds, [50, 95])
        peak = peak_memory()
        return (
            f"{len(self.seconds):,} maps: median {median:.1f} ms, 95% within {p95:.1f} ms, first "
            f"{1e3 * self.seconds[0]:.1f} ms" + ("" if peak is None else f"; {peak / 2**20:,.0f} MiB at most")
        )
