"""Evaluates a stream of label maps: counts per image, pooled scores, intervals. k classes, n images."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from densevit.errors import DataError
from densevit.evaluation.segmentation import metrics
from densevit.evaluation.segmentation.metrics import Ids, IntersectionStats, PredictedIds, boundary_areas
from densevit.evaluation.segmentation.scores import SegScores
from densevit.model_card import Palette


@dataclass(frozen=True)
class Counts:
    """Pixel counts of one image."""

    # labelled pixels of class (row), predicted as class (column), the last column being none
    confusion: Int64[np.ndarray, "k m"]
    boundary: IntersectionStats | None  # as `Areas`, of the pixels near borders; None if not computed

    @property
    def labelled(self) -> int:
        return int(self.confusion.sum())


def count(predicted: PredictedIds, labels: Ids, classes: int, *, boundary: bool = True) -> Counts:
    """Raises DataError if the maps differ in size; a label is beyond the classes."""
    matrix = metrics.confusion(predicted, labels, classes)
    return Counts(matrix, boundary_areas(predicted, labels, classes) if boundary else None)


def summarise(counts: Iterable[tuple[str, Counts]], classes: Sequence[str], palette: Palette = ()) -> SegScores:
    """The scores that a stream of counts makes. Raises DataError if a name that comes twice would weigh twice; nothing
    to score."""
    total = np.zeros((len(classes), len(classes) + 1), np.int64)
    areas: dict[str, Int64[np.ndarray, "parts 3 k"]] = {}
    skipped: list[str] = []
    for name, image_counts in counts:
        if name in areas or name in skipped:
            raise DataError(f"{name}: comes twice in one evaluation.")
        if not image_counts.labelled:
            skipped.append(name)
            continue
        total += image_counts.confusion
        whole = metrics.areas(image_counts.confusion)
        areas[name] = np.stack([whole] if image_counts.boundary is None else [whole, image_counts.boundary])
    if not areas:
        raise DataError(f"nothing to score: none of {len(skipped)} images has a labelled pixel.")
    return SegScores(tuple(classes), list(areas), np.stack(list(areas.values())), total, skipped, palette)
