"""Samples in order, the next ones read while the last is worked on."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from densevit.data.datasets.base import Dataset
from densevit.structures import Sample
from densevit.utils.signals import poll


def readahead(dataset: Dataset, ahead: int = 4, threads: int = 2) -> Iterator[Sample]:
    """Every sample once, in order; decoding releases the interpreter's lock, so threads are enough."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(dataset.read, index) for index in range(min(ahead, len(dataset))))
        for index in range(len(dataset)):
            poll(f"stopped after {index} of {len(dataset)} images; nothing is written.")
            sample = waiting.popleft().result()
            if index + ahead < len(dataset):
                waiting.append(pool.submit(dataset.read, index + ahead))
            yield sample
