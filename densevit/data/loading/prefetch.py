"""Bounded prefetching in threads: results come in order, and only a few items are computed ahead of the consumer."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from densevit.data.datasets.base import Dataset
from densevit.structures import Sample
from densevit.utils.signals import poll

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int) -> Iterator[Result]:
    """`map(work, items)` computed by threads, in order; at most `ahead` items are started before they are asked for.

    `items` is iterated in the caller's thread. Closing the iterator cancels what has not begun.
    """
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def prefetch_samples(dataset: Dataset, ahead: int = 4, threads: int = 2) -> Iterator[Sample]:
    """Every sample once, in order; decoding releases the interpreter's lock, so threads are enough."""
    samples = prefetch(dataset.read, range(len(dataset)), threads=threads, ahead=ahead)
    for index, sample in enumerate(samples):
        poll(f"stopped after {index} of {len(dataset)} images; nothing is written.")
        yield sample
