"""The scores of image classification. k classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Int64

from densevit.errors import DataError
from densevit.evaluation.classification.metrics import COLUMNS, mean_row
from densevit.evaluation.records import split_scored_and_skipped
from densevit.evaluation.scores import Cards, Scores
from densevit.reporting.tables import confusion_csv, finite, rows_csv
from densevit.structures import Row

WORST = 5  # confusions in the table


@dataclass(frozen=True)
class ClassScores(Scores):
    """The scores of a data set."""

    classes: tuple[str, ...]  # their names
    rows: Sequence[tuple[str, Row]]  # name and row of every image whose class is known, in the order they came
    mean: Row  # of these images
    # images of class (row) that were predicted as class (column); those without finite logits are in none
    confusion: Int64[np.ndarray, "k k"]
    skipped: Sequence[str]  # names of the images without a class

    task = "classification"
    ranking = "nll"
    resampled = False

    def per_class(self) -> dict[str, Row]:
        """Images, recall, precision and F1 of each class; NaN where nothing defines them."""
        labels = np.array([int(row["label"]) for _, row in self.rows])
        found = {}
        for i, name in enumerate(self.classes):
            hits, predicted = int(self.confusion[i, i]), int(self.confusion[:, i].sum())
            images = int((labels == i).sum())
            found[name] = {
                "images": float(images),
                "recall": _share(hits, images),
                "precision": _share(hits, predicted),
                "f1": _share(2 * hits, images + predicted),
            }
        return found

    def invalid(self) -> int:
        """Images without finite logits."""
        return sum(not isfinite(row["nll"]) for _, row in self.rows)

    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        return {
            "images": len(self.rows) + len(self.skipped),
            "scored": len(self.rows),
            "skipped": len(self.skipped),
            "invalid_predictions": self.invalid(),
        }

    def cards(self) -> Cards:
        return [(name, f"{self.mean[name]:.4f}", self.formula(name)) for name in ("accuracy", "nll")]

    def summary_sentence(self) -> str:
        parts = [f"{len(self.rows):,} of {len(self.rows) + len(self.skipped):,} images scored"]
        if self.skipped:
            parts.append(f"{len(self.skipped):,} without a class")
        if invalid := self.invalid():
            parts.append(f"{invalid:,} without finite logits, counted as wrong")
        return "; ".join(parts) + "."

    def details(self) -> list[str]:
        per_class = {name: row for name, row in self.per_class().items() if row["images"]}
        name = min(per_class, key=lambda name: per_class[name]["recall"])
        lines = [f"hardest class: {name}, {per_class[name]['recall']:.1%} of {per_class[name]['images']:.0f} images"]
        wrong = [(int(n), i, j) for (i, j), n in np.ndenumerate(self.confusion) if i != j and n]
        worst = sorted(wrong, key=lambda item: -item[0])[:WORST]
        shown = ", ".join(f"{self.classes[i]} as {self.classes[j]} {n}x" for n, i, j in worst)
        return [*lines, f"most frequent confusions: {shown or 'none'}"]

    def entries(self) -> dict[str, Any]:
        per_class = {name: finite(row) for name, row in self.per_class().items()}
        return {"per_class": per_class, "confusion": self.confusion.tolist()}

    def files(self) -> dict[str, str | bytes]:
        confusion = confusion_csv(self.classes, self.classes, self.confusion.tolist())
        return {"per_image.csv": self._csv(), "confusion.csv": confusion}

    def _csv(self) -> str:
        """One line per image, classes by name; the columns of a skipped one are empty."""
        names = {float(i): name for i, name in enumerate(self.classes)}
        columns = [name for name in COLUMNS if name in self.rows[0][1]]
        rows = [
            (name, row | {key: names.get(row[key], "") for key in ("label", "predicted")}) for name, row in self.rows
        ]
        return rows_csv("name", columns, rows, self.skipped)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def summarise(rows: Iterable[tuple[str, Row]], classes: Sequence[str]) -> ClassScores:
    """The scores that a set of rows makes, empty ones for images without a class. Raises DataError if a name that comes
    twice; nothing to score."""
    scored, skipped = split_scored_and_skipped(rows)
    if not scored:
        raise DataError(f"nothing to score: none of {len(skipped)} images has a class.")
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    for _, row in scored:
        if row["predicted"] >= 0:
            confusion[int(row["label"]), int(row["predicted"])] += 1
    return ClassScores(tuple(classes), scored, mean_row([row for _, row in scored]), confusion, skipped)
