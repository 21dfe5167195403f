"""The scores of semantic segmentation. k classes, n images."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import cv2
import numpy as np
from jaxtyping import Float, Int64, UInt8
from markupsafe import Markup

from densevit.errors import DataError
from densevit.evaluation.bootstrap import Bootstrap, bootstrap_pooled, no_interval_reason
from densevit.evaluation.scores import Cards, PooledScores
from densevit.evaluation.segmentation import metrics
from densevit.evaluation.segmentation.metrics import (
    TRUE,
    Ids,
    IntersectionStats,
    PredictedIds,
    boundary_areas,
    iou,
    share,
)
from densevit.model_card import Palette
from densevit.ops.colors import draw_text, text_width
from densevit.reporting.figures import Figure, lossless
from densevit.reporting.html_page import interval_text, render
from densevit.reporting.tables import confusion_csv, finite, rows_csv
from densevit.structures import Row

CARDS = {
    "miou": ("mIoU", "intersection over union, mean over classes"),
    "pixel_accuracy": ("pixel accuracy", "share of all pixels with the right class"),
    "mean_accuracy": ("mean accuracy", "share of a class's pixels, mean over classes"),
    "boundary_iou": ("boundary IoU", "of pixels near boundaries, mean over classes"),
}
COUNTS_FILE = "counts.npz"  # pixels of each image by class, for `densevit compare`
SHOWN = 60  # classes in the table that is printed
MAX_TABLE = 40  # classes up to which the confusion matrix is a table with names; of more it is an image


@dataclass(frozen=True)
class SegScores(PooledScores):
    """The scores of a data set."""

    classes: tuple[str, ...]
    names: Sequence[str]  # of the images with labels, in the order they came
    areas: Int64[np.ndarray, "n parts 3 k"]  # of each image, then of its boundaries; n 1 3 k if those were not computed
    confusion: Int64[np.ndarray, "k m"]  # of all images
    skipped: Sequence[str]  # names of the images without labels
    palette: Palette = ()  # RGB colours of the classes

    task = "segmentation"
    ranking = "pixel_accuracy"

    @cached_property
    def mean(self) -> Row:  # type: ignore[override]
        """The scores of the pooled pixels."""
        return {name: float(value) for name, value in statistics(self.areas.sum(0)).items() if value.ndim == 0}

    def redrawn(self, groups: Sequence[str]) -> Mapping[str, Bootstrap]:
        """Return each score, and each class's IoU (`iou/3`), over redrawn images."""
        return bootstrap_pooled(self.areas, statistics, groups)

    @cached_property
    def rows(self) -> list[tuple[str, Row]]:  # type: ignore[override]
        """Name and scores of each image by itself, with its labelled pixels."""
        stats = statistics(self.areas)
        pixels = self.areas[:, 0, TRUE].sum(-1)
        singles = {name: values for name, values in stats.items() if values.ndim == 1}
        return [
            (name, {key: float(values[i]) for key, values in singles.items()} | {"pixels": float(pixels[i])})
            for i, name in enumerate(self.names)
        ]

    def per_class(self) -> dict[str, Row]:
        """Return IoU, accuracy (recall), precision, share of the labelled pixels; with boundaries their IoU."""
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
        """Return the labelled pixels that were predicted as none of the classes."""
        return int(self.confusion[:, -1].sum())

    def confused(self, most: int = 5) -> list[tuple[str, str, float]]:
        """Return the most frequent confusions: true class, predicted class, share of the true class's pixels."""
        wrong = self.confusion[:, : len(self.classes)].copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = [divmod(int(cell), len(self.classes)) for cell in order]
        rows = self.confusion.sum(1)
        return [(self.classes[i], self.classes[j], wrong[i, j] / rows[i]) for i, j in pairs if wrong[i, j]]

    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        pixels = {"pixels": int(self.confusion.sum()), "unclassified_pixels": self.unclassified()}
        return super().counts | pixels

    def cards(self) -> Cards:
        return [(title, f"{self.mean[name]:.4f}", note) for name, (title, note) in CARDS.items() if name in self.mean]

    def summary_sentence(self) -> str:
        images = len(self.names) + len(self.skipped)
        parts = [f"{len(self.names):,} of {images:,} images scored, {self.confusion.sum():,} labelled pixels"]
        if self.skipped:
            parts.append(f"{len(self.skipped):,} without labels")
        if unclassified := self.unclassified():
            parts.append(f"{unclassified:,} pixels predicted as none of the classes, counted as wrong")
        return "; ".join([*parts, *no_interval_reason(len(self.names))]) + "."

    def details(self) -> list[str]:
        listed = ", ".join(f"{label} as {predicted} ({rate:.0%} of it)" for label, predicted, rate in self.confused())
        return [*self.classes_table(), "", f"most frequent confusions: {listed or 'none'}"]

    def classes_table(self) -> list[str]:
        """Return a line per class that is true or predicted somewhere."""
        rows = {name: row for name, row in self.per_class().items() if isfinite(row["iou"])}
        ranked = sorted(rows, key=lambda name: -rows[name]["iou"])
        width = max(map(len, ranked))
        columns = list(rows[ranked[0]])
        lines = [" " * width + "".join(f"{column:>14}" for column in columns)]
        lines += [
            f"{name:{width}}" + "".join(f"{_cell(rows[name][c]):>14}" for c in columns) for name in ranked[:SHOWN]
        ]
        return [*lines, f"... and {len(ranked) - SHOWN} more"] if len(ranked) > SHOWN else lines

    def entries(self) -> dict[str, Any]:
        named = {name: f"iou/{i}" for i, name in enumerate(self.classes)}
        return {
            "per_class": {name: finite(row) for name, row in self.per_class().items()},
            "class_intervals": {n: list(self.intervals[key]) for n, key in named.items() if key in self.intervals},
        }

    def files(self) -> dict[str, str | bytes]:
        image = draw_confusion(self.confusion, self.classes)[..., ::-1]
        counts = io.BytesIO()
        names, classes = np.array(self.names), np.array(self.classes)
        np.savez_compressed(counts, names=names, classes=classes, counts=self.areas)
        return {
            "per_image.csv": _rows("name", self.rows, self.skipped),
            "per_class.csv": _rows("class", list(self.per_class().items())),
            "confusion.csv": confusion_csv(self.classes, [*self.classes, "none"], self.confusion.tolist()),
            "confusion.png": cv2.imencode(".png", image)[1].tobytes(),
            COUNTS_FILE: counts.getvalue(),
        }

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        return {"further": self.sections(figures)}

    def sections(self, figures: Sequence[Figure], prefix: str = "") -> Markup:
        """Return the scores as a part of a page. `prefix`: of the headings."""
        per_class = self.per_class()
        shares, names, predicted = row_shares(self.confusion, self.classes)
        small = len(names) <= MAX_TABLE
        return render(
            "segmentation_sections.html",
            prefix=prefix,
            **super().page(figures, None),
            class_columns=[*next(iter(per_class.values())), "IoU, 95% over images"],
            classes=self._classes(),
            confused=self.confused(),
            confusion=list(zip(names, np.nan_to_num(shares).tolist(), strict=True)) if small else [],
            confusion_columns=predicted,
            confusion_image="" if small else lossless(draw_confusion(self.confusion, self.classes)),
        )

    def _classes(self) -> list[tuple[tuple[int, int, int], str, list[str]]]:
        """Return the colour, name and numbers of each class, the best first; one that is neither true nor predicted
        comes last."""
        rows = [
            (
                row["iou"],
                colour,
                name,
                [f"{value:.4f}" if isfinite(value) else "–" for value in row.values()],
                f"iou/{i}",
            )
            for i, ((name, row), colour) in enumerate(zip(self.per_class().items(), self.palette, strict=False))
        ]
        rows.sort(key=lambda row: -row[0] if isfinite(row[0]) else 1)
        intervals = self.intervals
        return [(colour, name, [*cells, interval_text(intervals.get(key))]) for _, colour, name, cells, key in rows]


def _cell(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else "-"


def _rows(what: str, rows: Sequence[tuple[str, Mapping[str, float]]], skipped: Sequence[str] = ()) -> str:
    """Return a line per row; scores that are not defined are empty."""
    defined = [(name, {key: value for key, value in row.items() if isfinite(value)}) for name, row in rows]
    return rows_csv(what, list(rows[0][1]), defined, skipped)


def statistics(areas: Int64[np.ndarray, "*n parts 3 k"]) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the scores of summed areas, and under `iou` those of each class."""
    scores = dict(metrics.scores(areas[..., 0, :, :]))
    if areas.shape[-3] > 1:
        scores["boundary_iou"] = metrics.mean(iou(areas[..., 1, :, :]))
    return {**scores, "iou": iou(areas[..., 0, :, :])}


Image = UInt8[np.ndarray, "h w 3"]

MATRIX_SIDE = 760  # pixels that the cells share
MAX_CELL, MIN_CELL = 40, 4  # pixels of a cell
CELL_FOR_NAMES = 12  # pixels of a cell from which on a name fits beside it
CELL_FOR_NUMBERS = 28  # pixels of a cell from which on its percentage fits into it
GAP = 5  # pixels before and behind a name
EMPTY = (238, 240, 243)  # of a class that does not occur
NONE, ALL = np.array([255.0, 255, 255]), np.array([12.0, 52, 120])  # 0% and 100%
SIZE, CAPITAL = 12, 8  # pixels of the letters, and the height of a capital
INK, PAPER = (28, 36, 48), (255, 255, 255)


def row_shares(
    confusion: Int64[np.ndarray, "k m"], names: Sequence[str]
) -> tuple[Float[np.ndarray, "k n"], list[str], list[str]]:
    """Return each row as shares of its sum, NaN for a class that does not occur; names of the rows and of the columns.

    The last of m = k + 1 columns, pixels predicted as no class, is left out where it is empty.
    """
    columns = [*names, "none"]
    if not confusion[:, -1].any():
        confusion, columns = confusion[:, :-1], columns[:-1]
    return share(confusion, np.broadcast_to(confusion.sum(1, keepdims=True), confusion.shape)), list(names), columns


def draw_confusion(confusion: Int64[np.ndarray, "k m"], names: Sequence[str]) -> Image:
    """Return the matrix, with names and percentages as far as they fit."""
    shares, rows, columns = row_shares(confusion, names)
    cell = int(np.clip(MATRIX_SIDE // len(names), MIN_CELL, MAX_CELL))
    cells = _cells(shares, cell)
    if cell < CELL_FOR_NAMES:
        return cells
    # Names beside the rows end at the cells; those above the columns, turned to read upwards, begin there.
    left, top = _names(rows, cell, right=True), np.rot90(_names(columns, cell, right=False))
    corner = np.full((len(top), left.shape[1], 3), PAPER, np.uint8)
    return np.concatenate([np.concatenate([corner, top], 1), np.concatenate([left, cells], 1)])


def _cells(shares: Float[np.ndarray, "k m"], cell: int) -> Image:
    filled = np.nan_to_num(shares)[..., None]
    colours = np.where(np.isnan(shares)[..., None], EMPTY, NONE + (ALL - NONE) * filled**0.5).round().astype(np.uint8)
    image = np.ascontiguousarray(colours.repeat(cell, 0).repeat(cell, 1))
    if cell >= CELL_FOR_NUMBERS:
        for (i, j), value in np.ndenumerate(shares):
            if value >= 0.005:
                text, ink = f"{value:.0%}"[:-1], PAPER if value > 0.25 else INK
                at = j * cell + cell // 2 - text_width(text, SIZE) // 2, i * cell + (cell + CAPITAL) // 2
                draw_text(image, text, at, SIZE, ink)
    return image


def _names(names: Sequence[str], height: int, *, right: bool) -> Image:
    """Return the names one below the other, at the right or left end of their lines."""
    widths = [text_width(name, SIZE) for name in names]
    width = max(widths) + 2 * GAP
    lines = np.full((len(names) * height, width, 3), PAPER, np.uint8)
    for i, (name, own) in enumerate(zip(names, widths, strict=True)):
        x = width - GAP - own if right else GAP
        draw_text(lines, name, (x, i * height + (height + CAPITAL) // 2), SIZE, INK)
    return lines


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
    """Raise DataError if the maps differ in size; a label is beyond the classes."""
    matrix = metrics.confusion(predicted, labels, classes)
    return Counts(matrix, boundary_areas(predicted, labels, classes) if boundary else None)


def summarise(counts: Iterable[tuple[str, Counts]], classes: Sequence[str], palette: Palette = ()) -> SegScores:
    """Return the scores that a stream of counts makes. Raises DataError if a name that comes twice would weigh twice;
    nothing to score."""
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
