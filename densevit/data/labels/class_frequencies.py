"""How often each class occurs in a data set, and the weights of a loss that follow from it."""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from densevit.data.datasets.base import Dataset
from densevit.errors import DataError
from densevit.structures import IGNORE

Found = tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]
"""Ids that occur in a label map, and their pixels."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Pixels and images of k classes."""

    names: tuple[str, ...]
    pixels: Int64[np.ndarray, " k"]  # of each class
    images: Int64[np.ndarray, " k"]  # that have the class
    present: Int64[np.ndarray, " k"]  # labelled pixels of the images that have the class
    ignored: int  # pixels without a class
    total: int  # images with a label map

    @property
    def shares(self) -> Float64[np.ndarray, " k"]:
        """Of the labelled pixels."""
        return self.pixels / max(int(self.pixels.sum()), 1)


def pixel_counts(labels: Int64[np.ndarray, "h w"]) -> Found:
    """Return the ids that occur, in order, and their pixels."""
    if labels.size and labels.min() >= 0 and labels.max() < 65536:
        counts = np.bincount(labels.ravel())  # many times faster than to sort
        ids = np.flatnonzero(counts)
        return ids, counts[ids]
    return np.unique(labels, return_counts=True)


def count_classes(
    data: Dataset,
    *,
    threads: int | None = None,
    progress: Callable[[Iterable[Found | None], int], Iterable[Found | None]] = lambda counted, total: counted,
) -> ClassCounts:
    """Read every label map once. Raises DataError if the data has no classes or no labels, or a label map is bad;
    naming it. `threads`: default: one a core; `progress`: wraps the maps, to show how far they are."""
    names = tuple(data.classes)
    if not names:
        raise DataError("this data names no classes, so there is nothing to count. docs/data.md says how to name them.")
    sums = {kind: np.zeros(len(names), np.int64) for kind in ("pixels", "images", "present")}
    ignored = total = 0
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        maps = pool.map(lambda index: _count_one(data, index), range(len(data)))
        for counted in progress(maps, len(data)):
            if counted is None:
                continue
            ids, counts = counted[0][counted[0] != IGNORE], counted[1][counted[0] != IGNORE]
            sums["pixels"][ids] += counts
            sums["images"][ids] += 1
            sums["present"][ids] += counts.sum()
            ignored += int(counted[1].sum() - counts.sum())
            total += 1
    if not sums["pixels"].any():
        raise DataError(f"none of the {len(data):,} samples has a label of any class.")
    return ClassCounts(names, **sums, ignored=ignored, total=total)


def _count_one(data: Dataset, index: int) -> Found | None:
    labels = data.label_map(index)
    if labels is None:
        return None
    ids, counts = pixel_counts(labels)
    if ids[ids != IGNORE].max(initial=-1) >= len(data.classes):
        raise DataError(f"'{data.names[index]}' holds class {ids.max()}; there are {len(data.classes)}.")
    return ids, counts


def inverse(counts: ClassCounts) -> Float64[np.ndarray, " k"]:
    """Return 1 / share, divided by the number of classes that occur: over all pixels the mean weight is 1."""
    return _zero_if_absent(counts, lambda: 1 / (counts.shares * np.count_nonzero(counts.pixels)))


def enet(counts: ClassCounts) -> Float64[np.ndarray, " k"]:
    """Return 1 / ln(1.02 + share), from 1.42 to 50.5 (Paszke et al. 2016, ENet)."""
    return _zero_if_absent(counts, lambda: 1 / np.log(1.02 + counts.shares))


def median_frequency(counts: ClassCounts) -> Float64[np.ndarray, " k"]:
    """Return the median frequency / frequency, that of a class taken over the images that have it (Eigen and Fergus
    2015)."""
    frequency = counts.pixels / np.maximum(counts.present, 1)
    return _zero_if_absent(counts, lambda: np.median(frequency[counts.pixels > 0]) / frequency)


def _zero_if_absent(counts: ClassCounts, weights: Callable[[], Float64[np.ndarray, " k"]]) -> Float64[np.ndarray, " k"]:
    """Return 0 for classes that do not occur, whose weight has no effect."""
    with np.errstate(divide="ignore"):
        return np.where(counts.pixels > 0, weights(), 0.0)


Method = Literal["inverse", "enet", "median"]
METHODS: Mapping[Method, Callable[[ClassCounts], Float64[np.ndarray, " k"]]] = {
    "inverse": inverse,
    "enet": enet,
    "median": median_frequency,
}
