"""Scores of semantic segmentation on one page: numbers, classes, confusion, pictures, time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import isfinite
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Int64, UInt8

from densevit.evaluation.segmentation import confusion_matrix
from densevit.evaluation.segmentation.evaluate import SegScores
from densevit.evaluation.segmentation.metrics import FORMULAE
from densevit.evaluation.segmentation.report import account
from densevit.model_card import Palette
from densevit.ops.palette import paint
from densevit.reporting.figures import figure, jpeg, png, shrink
from densevit.reporting.html_page import card, number_cards, paragraphs, sheet, span, times
from densevit.structures import IGNORE
from densevit.utils.atomic_io import write_text

SAME, OTHER, UNKNOWN = (222, 226, 230), (198, 40, 40), (255, 255, 255)
SHOWN = {
    "miou": "mIoU",
    "pixel_accuracy": "pixel accuracy",
    "mean_accuracy": "mean accuracy",
    "boundary_iou": "boundary IoU",
}


@dataclass(frozen=True, kw_only=True)
class SegPicture:
    """One sample to show.

    Attributes:
        label: why it is shown: best, median, worst.
        labels: true ids; IGNORE where unknown.
    """

    name: str
    label: str
    image: UInt8[np.ndarray, "h w 3"]
    labels: Int64[np.ndarray, "h w"]
    predicted: Int64[np.ndarray, "h w"]


@dataclass(frozen=True, kw_only=True)
class SegReport:
    """What the page shows; what is empty is left out.

    Attributes:
        palette: colours of the classes.
        times: what -> seconds.
        card: what the checkpoint says of itself.
    """

    title: str
    scores: SegScores
    palette: Palette
    subtitle: str = ""
    pictures: Sequence[SegPicture] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    card: Mapping[str, object] = field(default_factory=dict)


def write_html(path: str | Path, report: SegReport) -> Path:
    """Writes the page.

    Raises:
        StorageError: it cannot be written.
    """
    mean = report.scores.mean
    top = number_cards((told, f"{mean[name]:.4f}", "over all images") for name, told in SHOWN.items() if name in mean)
    rest = {
        **sections(report),
        "Time": times(report.times),
        "Account": paragraphs(account(report.scores)),
        "Checkpoint": card(report.card),
    }
    write_text(path, sheet(report.title, report.subtitle, top, rest))
    return Path(path)


def sections(report: SegReport) -> dict[str, str]:
    """The parts of the page that other pages may take in: HTML by heading."""
    return {
        "Metrics": _metrics(report.scores),
        "Classes": _classes(report),
        "Confusion": figure(
            "true classes down, predicted ones across; percent of the true class",
            png(confusion_matrix.draw(report.scores.confusion, report.scores.classes)),
        ),
        "Pictures": "".join(_row(picture, report) for picture in report.pictures),
    }


def _metrics(scores: SegScores) -> str:
    spreads = {"95% over images": scores.intervals, "95% over scenes": scores.scene_intervals}
    spreads = {name: spread for name, spread in spreads.items() if spread}
    head = "".join(f"<th>{name}</th>" for name in ("", "model", *spreads, "formula"))
    lines = []
    for name, value in scores.mean.items():
        cells = [f"{value:.4f}", *(span(spread.get(name)) for spread in spreads.values()), escape(FORMULAE[name])]
        lines.append(f"<tr><th>{name} ↑</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _classes(report: SegReport) -> str:
    """A line per class, the best first; one that is neither true nor predicted anywhere comes last."""
    rows = report.scores.per_class()
    places = {name: i for i, name in enumerate(rows)}
    columns = list(next(iter(rows.values())))
    head = "".join(f"<th>{name}</th>" for name in ("", *columns, "IoU, 95% over images"))
    lines = []
    for name in sorted(rows, key=lambda name: -rows[name]["iou"] if isfinite(rows[name]["iou"]) else 1):
        cells = [f"{rows[name][c]:.4f}" if isfinite(rows[name][c]) else "–" for c in columns]
        cells.append(span(report.scores.intervals.get(f"iou/{places[name]}")))
        heading = f"<th>{swatch(report.palette[places[name]])}{escape(name)}</th>"
        lines.append(f"<tr>{heading}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def swatch(colour: tuple[int, int, int]) -> str:
    return f'<span class="swatch" style="background: rgb{colour}"></span>'


def _row(picture: SegPicture, report: SegReport) -> str:
    """Image, truth, prediction, and where they differ; below them the classes that occur."""
    verdict = np.where((picture.labels == picture.predicted)[..., None], SAME, OTHER).astype(np.uint8)
    verdict[picture.labels == IGNORE] = UNKNOWN
    maps = {
        "truth": paint(picture.labels, report.palette),
        "prediction": paint(picture.predicted, report.palette),
        "red where they differ": verdict,
    }
    panels = [figure("image", jpeg(shrink(picture.image, cv2.INTER_AREA)))]
    panels += [figure(told, png(shrink(pixels, cv2.INTER_NEAREST))) for told, pixels in maps.items()]
    occurring = [i for i in np.union1d(picture.labels, picture.predicted).tolist() if 0 <= i < len(report.palette)]
    legend = "".join(f"<span>{swatch(report.palette[i])}{escape(report.scores.classes[i])}</span>" for i in occurring)
    score = dict(report.scores.per_image())[picture.name]["pixel_accuracy"]
    head = f"<b>{escape(picture.label)}</b> {escape(picture.name)} <span>pixel accuracy {score:.4f}</span>"
    return (
        f'<section class="sample"><h3>{head}</h3><div class="panels">{"".join(panels)}</div>'
        f'<div class="scales">{legend}</div></section>'
    )
