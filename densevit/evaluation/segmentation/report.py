"""The report of a segmentation evaluation: a table, JSON, CSV and an image of the confusion matrix."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from densevit.evaluation.bootstrap import no_interval_reason
from densevit.evaluation.segmentation import confusion_matrix
from densevit.evaluation.segmentation.evaluate import SegScores
from densevit.evaluation.segmentation.metrics import FORMULAE
from densevit.reporting.tables import Interval, confusion_csv, finite, interval_lines, json_text, rows_csv, write_files
from densevit.utils.atomic_io import atomic_write, write_bytes
from densevit.version import versions

COUNTS_FILE = "counts.npz"  # pixels of each image by class, for `densevit compare`
SCHEMA = 1  # of metrics.json; a new number when a key changes its meaning
SHOWN = 60  # classes in the table that is printed


def table(scores: SegScores) -> str:
    """The scores with their intervals, then each class, the best first, and the most frequent confusions."""
    names = "".join(f"{name:>16}" for name in scores.mean)
    values = "".join(f"{value:16.4f}" for value in scores.mean.values())
    lines = [names, values, *interval_lines(scores.intervals, scores.mean, "95% over images", width=16)]
    lines += interval_lines(scores.scene_intervals, scores.mean, "95% over scenes", width=16)
    return "\n".join([*lines, "", *classes_table(scores), "", *_confused(scores), summary_sentence(scores)])


def classes_table(scores: SegScores) -> list[str]:
    """A line per class that is true or predicted somewhere."""
    rows = {name: row for name, row in scores.per_class().items() if isfinite(row["iou"])}
    ranked = sorted(rows, key=lambda name: -rows[name]["iou"])
    width = max(map(len, ranked))
    columns = list(rows[ranked[0]])
    lines = [" " * width + "".join(f"{column:>14}" for column in columns)]
    lines += [f"{name:{width}}" + "".join(f"{_cell(rows[name][c]):>14}" for c in columns) for name in ranked[:SHOWN]]
    return [*lines, f"... and {len(ranked) - SHOWN} more"] if len(ranked) > SHOWN else lines


def _cell(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else "-"


def _confused(scores: SegScores) -> list[str]:
    listed = ", ".join(f"{label} as {predicted} ({part:.0%} of it)" for label, predicted, part in scores.confused())
    return [f"most frequent confusions: {listed or 'none'}"]


def summary_sentence(scores: SegScores) -> str:
    """How many images and pixels were scored and skipped, in a sentence."""
    images = len(scores.names) + len(scores.skipped)
    parts = [f"{len(scores.names):,} of {images:,} images scored, {scores.confusion.sum():,} labelled pixels"]
    if scores.skipped:
        parts.append(f"{len(scores.skipped):,} images without labels")
    if unclassified := scores.unclassified():
        parts.append(f"{unclassified:,} pixels predicted as none of the classes, counted as wrong")
    return "; ".join([*parts, *no_interval_reason(len(scores.names))]) + "."


def write_report(folder: str | Path, scores: SegScores, *, source: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes `metrics.json`, `counts.npz`, `confusion.png` and tables as CSV, making the folder.

    Args:
        source: what was scored, for the reader of the file; plain JSON values.

    Returns:
        their paths.

    Raises:
        StorageError: the folder cannot be made or written to.
    """
    content = {
        "metrics.json": json_text(as_tree(scores, source or {})),
        "per_image.csv": _rows("name", scores.per_image(), scores.skipped),
        "per_class.csv": _rows("class", list(scores.per_class().items())),
        "confusion.csv": confusion_csv(scores.classes, [*scores.classes, "none"], scores.confusion.tolist()),
    }
    written = write_files(folder, content)
    image = cv2.imencode(".png", confusion_matrix.draw(scores.confusion, scores.classes)[..., ::-1])[1].tobytes()
    write_bytes(shown := Path(folder) / "confusion.png", image)
    names, classes = np.array(scores.names), np.array(scores.classes)
    atomic_write(
        counts := Path(folder) / COUNTS_FILE,
        lambda file: np.savez_compressed(file, names=names, classes=classes, counts=scores.areas),
    )
    return [*written, shown, counts]


def as_tree(scores: SegScores, source: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but the images, in JSON's types; what is not finite is null."""
    return {
        "schema": SCHEMA,
        "task": "segmentation",
        "metrics": finite(scores.mean),
        "intervals": _of_scores(scores, scores.intervals),
        "scene_intervals": _of_scores(scores, scores.scene_intervals),
        "formulae": {name: FORMULAE[name] for name in scores.mean},
        "counts": {
            "images": len(scores.names) + len(scores.skipped),
            "scored": len(scores.names),
            "skipped": len(scores.skipped),
            "pixels": int(scores.confusion.sum()),
            "unclassified_pixels": scores.unclassified(),
        },
        "per_class": {name: finite(row) for name, row in scores.per_class().items()},
        "class_intervals": {
            name: list(scores.intervals[f"iou/{i}"])
            for i, name in enumerate(scores.classes)
            if f"iou/{i}" in scores.intervals
        },
        "skipped": list(scores.skipped),
        "source": dict(source),
        "versions": versions(),
    }


def _of_scores(scores: SegScores, found: Mapping[str, Interval]) -> dict[str, list[float]]:
    return {name: list(found[name]) for name in scores.mean if name in found}


def _rows(what: str, rows: Sequence[tuple[str, Mapping[str, float]]], skipped: Sequence[str] = ()) -> str:
    """A line per row; scores that are not defined are empty."""
    known = [(name, {key: value for key, value in row.items() if isfinite(value)}) for name, row in rows]
    return rows_csv(what, list(rows[0][1]), known, skipped)
