"""The report of a classification evaluation: a table, `metrics.json`, `per_image.csv` and `confusion.csv`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from densevit.evaluation.classification.metrics import COLUMNS, FORMULAE, ClassScores
from densevit.reporting.tables import confusion_csv, finite, json_text, rows_csv, write_files
from densevit.version import versions

SCHEMA = 1  # of metrics.json; a new number when a key changes its meaning
WORST = 5  # confusions in the table


def table(scores: ClassScores) -> str:
    """The means, the hardest class and the most frequent confusions, for a terminal."""
    names = "".join(f"{name:>16}" for name in scores.mean)
    values = "".join(f"{value:16.4f}" for value in scores.mean.values())
    return "\n".join([names, values, "", *hardest(scores), summary_sentence(scores)])


def summary_sentence(scores: ClassScores) -> str:
    """How many images were scored, skipped and wrong, in a sentence."""
    parts = [f"{len(scores.rows):,} of {len(scores.rows) + len(scores.skipped):,} images scored"]
    if scores.skipped:
        parts.append(f"{len(scores.skipped):,} without a class")
    if invalid := scores.invalid():
        parts.append(f"{invalid:,} without finite logits, counted as wrong")
    return "; ".join(parts) + "."


def hardest(scores: ClassScores) -> list[str]:
    per_class = {name: row for name, row in scores.per_class().items() if row["images"]}
    name = min(per_class, key=lambda name: per_class[name]["recall"])
    lines = [f"hardest class: {name}, {per_class[name]['recall']:.1%} of {per_class[name]['images']:.0f} images"]
    wrong = [(int(n), i, j) for (i, j), n in np.ndenumerate(scores.confusion) if i != j and n]
    worst = sorted(wrong, key=lambda item: -item[0])[:WORST]
    shown = ", ".join(f"{scores.classes[i]} as {scores.classes[j]} {n}x" for n, i, j in worst)
    return [*lines, f"most frequent confusions: {shown or 'none'}"]


def write_report(folder: str | Path, scores: ClassScores, *, source: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes the three files, making the folder.

    Args:
        source: what was scored, for the reader of the file; plain JSON values.

    Returns:
        their paths.

    Raises:
        StorageError: the folder cannot be made or written to.
    """
    content = {
        "metrics.json": json_text(as_tree(scores, source or {})),
        "per_image.csv": as_csv(scores),
        "confusion.csv": confusion_csv(scores.classes, scores.classes, scores.confusion.tolist()),
    }
    return write_files(folder, content)


def as_tree(scores: ClassScores, source: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but the rows, in JSON's types; what is not finite is null."""
    return {
        "schema": SCHEMA,
        "task": "classification",
        "metrics": finite(scores.mean),
        "formulae": {name: FORMULAE[name] for name in scores.mean},
        "counts": {
            "images": len(scores.rows) + len(scores.skipped),
            "scored": len(scores.rows),
            "skipped": len(scores.skipped),
            "invalid_predictions": scores.invalid(),
        },
        "per_class": {name: finite(row) for name, row in scores.per_class().items()},
        "confusion": scores.confusion.tolist(),
        "skipped": list(scores.skipped),
        "source": dict(source),
        "versions": versions(),
    }


def as_csv(scores: ClassScores) -> str:
    """One line per image, classes by name; the columns of a skipped one are empty."""
    names = {float(i): name for i, name in enumerate(scores.classes)}
    columns = [name for name in COLUMNS if name in scores.rows[0][1]]
    rows = [(name, row | {key: names.get(row[key], "") for key in ("label", "predicted")}) for name, row in scores.rows]
    return rows_csv("name", columns, rows, scores.skipped)
