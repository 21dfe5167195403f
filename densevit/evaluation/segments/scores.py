"""The scores of segments: panoptic quality, or average precision of instances. n images, k classes."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int64

from densevit.errors import DataError
from densevit.evaluation.bootstrap import Bootstrap, bootstrap_pooled, no_interval_reason
from densevit.evaluation.scores import Cards, PooledScores
from densevit.evaluation.segments import instances, panoptic
from densevit.evaluation.segments.instances import Matches
from densevit.evaluation.segments.panoptic import Ids, QualityStats
from densevit.model_card import HeadSpec, Palette
from densevit.ops.segments import InstancePrediction, PanopticPrediction, Segments, objects_of
from densevit.reporting.figures import Figure
from densevit.reporting.html_page import interval_text, render
from densevit.reporting.tables import finite, rows_csv
from densevit.structures import Row

SHOWN = 60  # classes in the table that is printed
COUNTS = (*panoptic.COLUMNS[1:], "objects")
FIXED = 10**9  # IoUs are redrawn as whole numbers of its parts


@dataclass(frozen=True)
class SegmentScores(PooledScores):
    """What both kinds have in common.

    Attributes:
        things: the classes whose segments are single objects.
        names: of the images that were scored.
    """

    classes: tuple[str, ...]
    palette: Palette
    things: frozenset[int]
    names: Sequence[str]
    skipped: Sequence[str]

    width = 12
    titles: ClassVar[Mapping[str, str]]  # of the cards, by metric
    printed: ClassVar[Sequence[str]]  # metrics that are columns of the printed table

    def columns(self) -> Sequence[str]:
        return [name for name in self.printed if name in self.mean]

    def cards(self) -> Cards:
        return [
            (title, f"{self.mean[name]:.4f}", "mean over classes")
            for name, title in self.titles.items()
            if name in self.mean
        ]

    @abstractmethod
    def class_columns(self) -> Mapping[str, Float[np.ndarray, " k"]]:
        """Return the scores of each class, the first of which ranks them; NaN where it does not occur."""

    def per_class(self) -> dict[str, Row]:
        columns = self.class_columns()
        return {name: {key: float(x[i]) for key, x in columns.items()} for i, name in enumerate(self.classes)}

    def summary_sentence(self) -> str:
        parts = [f"{len(self.names):,} of {len(self.names) + len(self.skipped):,} images scored"]
        parts += [f"{len(self.skipped):,} without segments"] if self.skipped else []
        return "; ".join([*parts, *no_interval_reason(len(self.names))]) + "."

    def details(self) -> list[str]:
        """Return a line for each class that occurs, the best first."""
        ranked = self._ranked()
        width = max((len(name) for name, _ in ranked), default=0)
        lines = [" " * width + "".join(f"{column:>10}" for column in self.class_columns())]
        lines += [f"{name:{width}}" + "".join(f"{text:>10}" for text in _cells(row)) for name, row in ranked[:SHOWN]]
        return [*lines, f"... and {len(ranked) - SHOWN} more"] if len(ranked) > SHOWN else lines

    def _ranked(self) -> list[tuple[str, Row]]:
        first = next(iter(self.class_columns()))
        rows = [(name, row) for name, row in self.per_class().items() if isfinite(row[first])]
        return sorted(rows, key=lambda item: -item[1][first])

    def entries(self) -> dict[str, Any]:
        return {"per_class": {name: finite(row) for name, row in self.per_class().items()}}

    def files(self) -> dict[str, str | bytes]:
        rows = [(name, finite_only(row)) for name, row in self.per_class().items()]
        images = [(name, finite_only(row)) for name, row in self.rows]
        return {
            "per_image.csv": rows_csv(
                "name", list(dict.fromkeys(k for _, row in images for k in row)), images, self.skipped
            ),
            "per_class.csv": rows_csv("class", list(self.class_columns()), rows),
        }

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        colours = dict(zip(self.classes, self.palette, strict=False))
        columns = list(self.class_columns())
        classes = [
            (colours.get(name, (128, 128, 128)), name,
             [*_cells(row), interval_text(self.intervals.get(f"{columns[0]}/{name}"))])
            for name, row in self._ranked()
        ]  # fmt: skip
        return {
            "further": render(
                "segmentation_sections.html", prefix="", **super().page(figures, None),
                class_columns=[*columns, f"{columns[0]}, 95% over images"], classes=classes,
            )
        }  # fmt: skip


@dataclass(frozen=True)
class PanopticScores(SegmentScores):
    """Panoptic quality of a data set."""

    stats: Float[np.ndarray, "n k 4"]  # of each image (evaluation.segments.panoptic.QualityStats)

    task = "panoptic"
    ranking = "pq"
    titles = MappingProxyType(
        {"pq": "PQ", "pq_things": "PQ of things", "pq_stuff": "PQ of stuff", "sq": "SQ", "rq": "RQ"}
    )
    printed = ("pq", "sq", "rq", "pq_things", "pq_stuff")

    @cached_property
    def mean(self) -> Row:  # type: ignore[override]
        return finite_only({name: float(x) for name, x in panoptic.quality(self.stats.sum(0), self.things).items()})

    @cached_property
    def rows(self) -> list[tuple[str, Row]]:  # type: ignore[override]
        """Name and scores of each image by itself."""
        scores = panoptic.quality(self.stats, self.things)
        return [(name, {key: float(x[i]) for key, x in scores.items()}) for i, name in enumerate(self.names)]

    def redrawn(self, groups: Sequence[str]) -> Mapping[str, Bootstrap]:
        def statistics(counts: np.ndarray) -> dict[str, np.ndarray]:
            stats = counts.astype(np.float64)
            return {**panoptic.quality(stats, self.things), "pq of class": panoptic.class_quality(stats)["pq"]}

        results = bootstrap_pooled(np.rint(FIXED * self.stats).astype(np.int64), statistics, groups)
        named = {f"pq of class/{i}": f"pq/{name}" for i, name in enumerate(self.classes)}
        return {named.get(name, name): redrawn for name, redrawn in results.items()}

    def class_columns(self) -> Mapping[str, Float[np.ndarray, " k"]]:
        total = self.stats.sum(0)
        return {**panoptic.class_quality(total), **dict(zip(panoptic.COLUMNS[1:], total.T[1:], strict=True))}


@dataclass(frozen=True)
class InstanceScores(SegmentScores):
    """Average precision of a data set."""

    images: Sequence[Matches]

    task = "instances"
    ranking = "f1"
    titles = MappingProxyType({"ap": "AP", "ap50": "AP at IoU 0.5", "ap75": "AP at IoU 0.75", "ar100": "AR"})
    printed = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar100")

    @cached_property
    def _precision(self) -> tuple[Row, Mapping[str, Float[np.ndarray, " k"]]]:
        return instances.average_precision(self.images)

    @property
    def mean(self) -> Row:  # type: ignore[override]
        return self._precision[0]

    @cached_property
    def rows(self) -> list[tuple[str, Row]]:  # type: ignore[override]
        """Name and scores of each image by itself."""
        return [(name, image.row()) for name, image in zip(self.names, self.images, strict=True)]

    def redrawn(self, groups: Sequence[str]) -> Mapping[str, Bootstrap]:
        return instances.bootstrap_precision(self.images, groups)

    def class_columns(self) -> Mapping[str, Float[np.ndarray, " k"]]:
        objects = np.sum([image.objects[0] for image in self.images], 0)
        return {**self._precision[1], "objects": np.where(objects, objects, np.nan)}


def summarise(
    images: Iterable[tuple[str, QualityStats | Matches]],
    classes: Sequence[str],
    things: Iterable[int],
    palette: Palette,
    unlabelled: Sequence[str] = (),
) -> SegmentScores:
    """Return the scores of images. Raises DataError if a name comes twice, or nothing is scored. `unlabelled`: images
    without ground truth, all of them once `images` has ended."""
    scored: dict[str, Any] = {}
    skipped: list[str] = []
    for name, one in images:
        if name in scored or name in skipped:
            raise DataError(f"{name}: comes twice in one evaluation.")
        if isinstance(one, Matches) or one.any():
            scored[name] = one
        else:
            skipped.append(name)
    skipped += unlabelled
    values = list(scored.values())
    if not any(x.objects.any() if isinstance(x, Matches) else x[:, (1, 3)].any() for x in values):
        raise DataError(
            f"nothing to score: none of {len(scored) + len(skipped)} images has a segment. Rooms have them with "
            "--data-options instances=true, Cityscapes with encoding=instanceIds; a folder has them in `segments`."
        )
    common = (tuple(classes), palette, frozenset(things), list(scored), skipped)
    if isinstance(values[0], Matches):
        return InstanceScores(*common, values)
    return PanopticScores(*common, np.stack(values))


def finite_only(row: Row) -> Row:
    """Return the scores that are defined."""
    return {name: value for name, value in row.items() if isfinite(value)}


def _cells(row: Row) -> list[str]:
    return ["-" if not isfinite(x) else f"{x:.0f}" if name in COUNTS else f"{x:.4f}" for name, x in row.items()]


Classes = Int64[np.ndarray, " n"]
Crowd = Bool[np.ndarray, " n"]


def segment_scores(output: HeadSpec) -> tuple[Callable[..., Row], Callable[[Sequence[Any]], Row]]:
    """Return what scores an image, and what makes the scores of a data set of those of its images."""
    classes, things = len(output.classes), output.things
    if output.kind == "panoptic":
        return partial(panoptic_row, num_classes=classes), partial(panoptic.pooled, num_classes=classes, things=things)
    return partial(instances_row, things=things or range(classes), num_classes=classes), average_precision


def panoptic_row(prediction: PanopticPrediction, ids: Ids, classes: Classes, crowd: Crowd, *, num_classes: int) -> Row:
    return panoptic.as_row(panoptic.count(prediction.segments, prediction.classes, ids, classes, crowd, num_classes))


def instances_row(
    prediction: InstancePrediction, ids: Ids, classes: Classes, crowd: Crowd, *, things: Sequence[int], num_classes: int
) -> dict[str, Any]:
    """Return the matches of an image; objects are the segments of things, with the area that they have in the image."""
    objects = objects_of(Segments(ids, classes, crowd), things)
    return {"matches": instances.match(prediction.masks, prediction.classes, prediction.scores, *objects, num_classes)}


def average_precision(rows: Sequence[dict[str, Any]]) -> Row:
    return instances.average_precision([row["matches"] for row in rows])[0]
