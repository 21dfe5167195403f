"""Segments of an image: a map of numbers, and the class of each; h x w pixels, n segments."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

from densevit.structures import IGNORE


class Segments(NamedTuple):
    """What `Sample.segments`, `segment_classes` and `segment_crowd` hold."""

    ids: Int32[np.ndarray, "h w"]  # k is row k - 1 of the others; 0 is void
    classes: Int64[np.ndarray, " n"]
    crowd: Bool[np.ndarray, " n"]

    def labels(self, empty: int = IGNORE) -> Int64[np.ndarray, "h w"]:
        """Return the class of each pixel, `empty` in void and IGNORE in crowds."""
        labels: Int64[np.ndarray, "h w"] = np.array([empty, *np.where(self.crowd, IGNORE, self.classes)])[self.ids]
        return labels

    def mapped(self, classes: Int64[np.ndarray, " n"]) -> "Segments":
        """Return the segments with other classes; those of class IGNORE become void."""
        kept = classes != IGNORE
        numbers = np.where([False, *kept], np.cumsum([0, *kept]), 0).astype(np.int32)
        return Segments(numbers[self.ids], classes[kept], self.crowd[kept])


def segments_of_ids(
    ids: Integer[np.ndarray, "h w"], stored: Sequence[int], classes: Sequence[int], crowd: Sequence[bool]
) -> tuple[Segments, list[int]]:
    """Return the segments of a map of stored ids, and the ids in it that are neither 0 nor in `stored`."""
    found, inverse = np.unique(ids, return_inverse=True)
    rows = {id_: row for row, id_ in enumerate(stored, 1)}
    numbers = np.array([rows.get(int(id_), 0) for id_ in found], np.int32)
    unknown = [int(id_) for id_, number in zip(found, numbers, strict=True) if id_ and not number]
    segments = Segments(numbers[inverse].reshape(ids.shape), np.array(classes, np.int64), np.array(crowd, np.bool_))
    return segments, unknown


def segments_of_labels(labels: Int64[np.ndarray, "h w"], objects: Integer[np.ndarray, "h w"]) -> Segments:
    """Return one segment for each pair of a class and the number of an object in it; void where there is no class."""
    pairs = labels * (1 << 32) + objects
    found, inverse = np.unique(np.where(labels == IGNORE, -1, pairs), return_inverse=True)
    void = int(found[:1].tolist() == [-1])
    ids = (inverse.reshape(labels.shape) + 1 - void).astype(np.int32)
    classes = found[void:] >> 32
    return Segments(ids, classes, np.zeros(len(classes), np.bool_))
