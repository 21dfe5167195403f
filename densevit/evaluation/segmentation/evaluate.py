"""Evaluates a stream of label maps: counts per image, pooled scores, intervals. k classes, n images."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64

from densevit.errors import DataError
from densevit.evaluation.bootstrap import bootstrap_pooled, scenes_of
from densevit.evaluation.records import examples
from densevit.evaluation.segmentation import metrics
from densevit.evaluation.segmentation.boundary_iou import boundary_areas
from densevit.evaluation.segmentation.metrics import TRUE, Ids, IntersectionStats, PredictedIds, iou, share
from densevit.reporting.tables import Interval
from densevit.structures import Row


@dataclass(frozen=True)
class Counts:
    """Pixel counts of one image.

    Attributes:
        confusion: labelled pixels of class (row), predicted as class (column), the last column being none.
        boundary: as `Areas`, of the pixels near borders; None if not computed.
    """

    confusion: Int64[np.ndarray, "k m"]
    boundary: IntersectionStats | None

    @property
    def labelled(self) -> int:
        return int(self.confusion.sum())


def count(predicted: PredictedIds, labels: Ids, classes: int, *, boundary: bool = True) -> Counts:
    """
    Raises:
        DataError: the maps differ in size; a label is beyond the classes.
    """
    found = metrics.confusion(predicted, labels, classes)
    return Counts(found, boundary_areas(predicted, labels, classes) if boundary else None)


@dataclass(frozen=True)
class SegScores:
    """The scores of a data set.

    Attributes:
        names: of the images with labels, in the order they came.
        areas: of each image, then of its boundaries; n 1 3 k if those were not computed.
        confusion: of all images.
        skipped: names of the images without labels.
    """

    classes: tuple[str, ...]
    names: Sequence[str]
    areas: Int64[np.ndarray, "n parts 3 k"]
    confusion: Int64[np.ndarray, "k m"]
    skipped: Sequence[str]

    @cached_property
    def mean(self) -> Row:
        """The scores of the pooled pixels."""
        return {name: float(value) for name, value in statistics(self.areas.sum(0)).items() if value.ndim == 0}

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """95% bootstrap interval of each score and of each class's IoU (`iou/3`), the images being the sample."""
        return self._intervals(self.names)

    @cached_property
    def scene_intervals(self) -> dict[str, Interval]:
        """The same with whole scenes as the sample; none of too few."""
        scenes = scenes_of(self.names)
        return self._intervals([scenes[name] for name in self.names])

    def _intervals(self, groups: Sequence[str]) -> dict[str, Interval]:
        found = bootstrap_pooled(self.areas, statistics, groups)
        return {name: redrawn.interval() for name, redrawn in found.items()}

    def per_image(self) -> list[tuple[str, Row]]:
        """Name and scores of each image by itself, with its labelled pixels."""
        found = statistics(self.areas)
        pixels = self.areas[:, 0, TRUE].sum(-1)
        singles = {name: values for name, values in found.items() if values.ndim == 1}
        return [
            (name, {key: float(values[i]) for key, values in singles.items()} | {"pixels": float(pixels[i])})
            for i, name in enumerate(self.names)
        ]

    def per_class(self) -> dict[str, Row]:
        """IoU, accuracy (recall), precision, share of the labelled pixels; with boundaries their IoU."""
        total = self.areas.sum(0)
        hits, true, predicted = total[0]
        columns = {
            "iou": iou(total[0]),
            "accuracy": share(hits, true),
            "precision": share(hits, predicted),
            "share": share(true, np.full_like(true, true.sum())),
        }
        if len(total) > 1:
            columns["boundary_iou"] = iou(total[1])
        return {name: {key: float(values[i]) for key, values in columns.items()} for i, name in enumerate(self.classes)}

    def unclassified(self) -> int:
        """Labelled pixels that were predicted as none of the classes."""
        return int(self.confusion[:, -1].sum())

    def examples(self) -> dict[str, str]:
        """Label -> name of the best, the median and the worst images, by pixel accuracy."""
        return examples([name for name, _ in sorted(self.per_image(), key=lambda item: -item[1]["pixel_accuracy"])])

    def confused(self, most: int = 5) -> list[tuple[str, str, float]]:
        """The most frequent confusions: true class, predicted class, share of the true class's pixels."""
        wrong = self.confusion[:, : len(self.classes)].copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.classes)) for place in order]
        rows = self.confusion.sum(1)
        return [(self.classes[i], self.classes[j], wrong[i, j] / rows[i]) for i, j in pairs if wrong[i, j]]


def statistics(areas: Int64[np.ndarray, "*n parts 3 k"]) -> dict[str, Float[np.ndarray, "..."]]:
    """The scores of summed areas, and under `iou` those of each class."""
    found = dict(metrics.scores(areas[..., 0, :, :]))
    if areas.shape[-3] > 1:
        found["boundary_iou"] = metrics.mean(iou(areas[..., 1, :, :]))
    return {**found, "iou": iou(areas[..., 0, :, :])}


def summarise(counts: Iterable[tuple[str, Counts]], classes: Sequence[str]) -> SegScores:
    """The scores that a stream of counts makes.

    Raises:
        DataError: a name that comes twice would weigh twice; nothing to score.
    """
    total = np.zeros((len(classes), len(classes) + 1), np.int64)
    areas: dict[str, Int64[np.ndarray, "parts 3 k"]] = {}
    skipped: list[str] = []
    for name, found in counts:
        if name in areas or name in skipped:
            raise DataError(f"{name}: comes twice in one evaluation.")
        if not found.labelled:
            skipped.append(name)
            continue
        total += found.confusion
        own = metrics.areas(found.confusion)
        areas[name] = np.stack([own] if found.boundary is None else [own, found.boundary])
    if not areas:
        raise DataError(f"nothing to score: none of {len(skipped)} images has a labelled pixel.")
    return SegScores(tuple(classes), list(areas), np.stack(list(areas.values())), total, skipped)
