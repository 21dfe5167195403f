"""Image classification: accuracy, top-5, scores per class, confusion. k classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from densevit.errors import DataError
from densevit.evaluation.scores import Cards, Scores, register_metrics, split_scored_and_skipped
from densevit.reporting.tables import confusion_csv, finite, rows_csv
from densevit.structures import Row

FORMULAE = {
    "accuracy": "share of images whose largest logit is that of their class",
    "top5": "share of images whose class is among the five largest logits; with more than five classes",
    "class_accuracy": "mean over the classes that occur of the accuracy on their images",
    "nll": "mean of -ln p(class), p the softmax of the logits",
}
register_metrics("classification", FORMULAE, "max")
register_metrics("classification", {"nll": FORMULAE["nll"]})
TOP = 5
COLUMNS = ("accuracy", "top5", "nll", "confidence", "label", "predicted")
"""Of a row: hit (0 or 1), hit among five, -ln p(class), p of the predicted class, class ids (-1: no finite logits)."""


def score(logits: Float[np.ndarray, " k"], label: int) -> Row:
    """Return the row of one image; logits that are not all finite predict nothing, which is wrong. Raises DataError if
    the class is not among those of the logits."""
    if not 0 <= label < len(logits):
        raise DataError(f"class {label} is not among the {len(logits)} classes of the model.")
    logits = logits.astype(np.float64)
    if not np.isfinite(logits).all():
        wrong = {"accuracy": 0.0, "top5": 0.0, "nll": float("inf"), "confidence": 0.0}
        return {**_fitting(wrong, len(logits)), "label": float(label), "predicted": -1.0}
    logs = logits - logits.max()
    logs -= np.log(np.exp(logs).sum())
    order = np.argsort(-logs, kind="stable")[:TOP]  # of equal logits the first class, as argmax has it
    predicted = int(order[0])
    metrics = {
        "accuracy": float(predicted == label),
        "top5": float(label in order),
        "nll": -float(logs[label]) + 0.0,
        "confidence": float(np.exp(logs[predicted])),
    }
    return {**_fitting(metrics, len(logits)), "label": float(label), "predicted": float(predicted)}


def _fitting(row: Row, classes: int) -> Row:
    """Top-5 of five classes or fewer says nothing."""
    return {name: value for name, value in row.items() if name != "top5" or classes > TOP}


def mean_row(rows: Sequence[Row]) -> Row:
    """Return the scores of a data set; exact in any order of its images."""
    names = [name for name in ("accuracy", "top5") if name in rows[0]]
    scores: Row = {name: fsum(row[name] for row in rows) / len(rows) for name in names}
    hits: dict[int, list[float]] = {}
    for row in rows:
        hits.setdefault(int(row["label"]), []).append(row["accuracy"])
    scores["class_accuracy"] = fsum(fsum(values) / len(values) for values in hits.values()) / len(hits)
    scores["nll"] = fsum(row["nll"] for row in rows) / len(rows)
    return scores


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
        """Return the images, recall, precision and F1 of each class; NaN where nothing defines them."""
        labels = np.array([int(row["label"]) for _, row in self.rows])
        rows = {}
        for i, name in enumerate(self.classes):
            hits, predicted = int(self.confusion[i, i]), int(self.confusion[:, i].sum())
            images = int((labels == i).sum())
            rows[name] = {
                "images": float(images),
                "recall": _share(hits, images),
                "precision": _share(hits, predicted),
                "f1": _share(2 * hits, images + predicted),
            }
        return rows

    def invalid(self) -> int:
        """Return the images without finite logits."""
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
        names = {float(i): name for i, name in enumerate(self.classes)}
        columns = [name for name in COLUMNS if name in self.rows[0][1]]
        rows = [
            (name, row | {key: names.get(row[key], "") for key in ("label", "predicted")}) for name, row in self.rows
        ]
        return {
            "per_image.csv": rows_csv("name", columns, rows, self.skipped),
            "confusion.csv": confusion_csv(self.classes, self.classes, self.confusion.tolist()),
        }


def _share(count: int, whole: int) -> float:
    return count / whole if whole else float("nan")


def summarise(rows: Iterable[tuple[str, Row]], classes: Sequence[str]) -> ClassScores:
    """Return the scores that a set of rows makes, empty ones for images without a class. Raises DataError if a name
    that comes twice; nothing to score."""
    scored, skipped = split_scored_and_skipped(rows)
    if not scored:
        raise DataError(f"nothing to score: none of {len(skipped)} images has a class.")
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    for _, row in scored:
        if row["predicted"] >= 0:
            confusion[int(row["label"]), int(row["predicted"])] += 1
    return ClassScores(tuple(classes), scored, mean_row([row for _, row in scored]), confusion, skipped)
