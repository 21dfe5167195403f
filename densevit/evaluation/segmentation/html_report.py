"""The HTML report of a segmentation evaluation: numbers, classes, confusion, samples, time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import numpy as np
from markupsafe import Markup

from densevit.evaluation.segmentation import confusion_matrix
from densevit.evaluation.segmentation.evaluate import SegScores
from densevit.evaluation.segmentation.metrics import FORMULAE
from densevit.evaluation.segmentation.report import summary_sentence
from densevit.model_card import Palette
from densevit.reporting.figures import Figure, lossless
from densevit.reporting.html_page import interval_text, render, write_evaluation_page

CARDS = {
    "miou": "mIoU",
    "pixel_accuracy": "pixel accuracy",
    "mean_accuracy": "mean accuracy",
    "boundary_iou": "boundary IoU",
}
MAX_TABLE = 40  # classes up to which the confusion matrix is a table with names; of more it is an image


@dataclass(frozen=True, kw_only=True)
class SegReport:
    """What the page shows; what is empty is left out.

    Attributes:
        palette: colours of the classes.
        times: what -> seconds.
        card: the checkpoint's model card.
    """

    title: str
    scores: SegScores
    palette: Palette
    subtitle: str = ""
    samples: Sequence[Figure] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    card: Mapping[str, object] = field(default_factory=dict)


def write_html(path: str | Path, report: SegReport) -> Path:
    """Writes the page.

    Raises:
        StorageError: it cannot be written.
    """
    mean = report.scores.mean
    return write_evaluation_page(
        path,
        title=report.title,
        subtitle=report.subtitle,
        cards=[(title, f"{mean[name]:.4f}", "over all images") for name, title in CARDS.items() if name in mean],
        further=sections(report),
        times=report.times,
        summary=summary_sentence(report.scores),
        card=report.card,
    )


def sections(report: SegReport, prefix: str = "") -> Markup:
    """The scores as a part of a page.

    Args:
        prefix: of the headings.
    """
    scores = report.scores
    intervals = {"95% over images": scores.intervals, "95% over scenes": scores.scene_intervals}
    intervals = {name: each for name, each in intervals.items() if each}
    metrics = [
        (f"{name} ↑", [f"{value:.4f}", *(interval_text(each.get(name)) for each in intervals.values())], FORMULAE[name])
        for name, value in scores.mean.items()
    ]
    per_class = scores.per_class()
    shares, names, predicted = confusion_matrix.row_shares(scores.confusion, scores.classes)
    small = len(names) <= MAX_TABLE
    return render(
        "segmentation_sections.html",
        prefix=prefix,
        columns=["model", *intervals],
        metrics=metrics,
        class_columns=[*next(iter(per_class.values())), "IoU, 95% over images"],
        classes=_classes(report),
        confused=scores.confused(),
        confusion=list(zip(names, np.nan_to_num(shares).tolist(), strict=True)) if small else [],
        confusion_columns=predicted,
        confusion_image="" if small else lossless(confusion_matrix.draw(scores.confusion, scores.classes)),
        samples=report.samples,
    )


def _classes(report: SegReport) -> list[tuple[tuple[int, int, int], str, list[str]]]:
    """Colour, name and numbers of each class, the best first; one that is neither true nor predicted comes last."""
    rows = [
        (row["iou"], colour, name, [f"{value:.4f}" if isfinite(value) else "–" for value in row.values()], f"iou/{i}")
        for i, ((name, row), colour) in enumerate(zip(report.scores.per_class().items(), report.palette, strict=False))
    ]
    rows.sort(key=lambda row: -row[0] if isfinite(row[0]) else 1)
    intervals = report.scores.intervals
    return [(colour, name, [*cells, interval_text(intervals.get(key))]) for _, colour, name, cells, key in rows]
