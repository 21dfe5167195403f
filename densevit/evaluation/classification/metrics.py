"""The numbers of image classification: accuracy, top-5, per class, confusion. k classes."""

from collections.abc import Sequence
from math import fsum

import numpy as np
from jaxtyping import Float

from densevit.errors import DataError
from densevit.evaluation.metrics import register_metrics
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
    """The row of one image; logits that are not all finite predict nothing, which is wrong. Raises DataError if the
    class is not among those of the logits."""
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
    found = {
        "accuracy": float(predicted == label),
        "top5": float(label in order),
        "nll": -float(logs[label]) + 0.0,
        "confidence": float(np.exp(logs[predicted])),
    }
    return {**_fitting(found, len(logits)), "label": float(label), "predicted": float(predicted)}


def _fitting(row: Row, classes: int) -> Row:
    """Top-5 of five classes or fewer says nothing."""
    return {name: value for name, value in row.items() if name != "top5" or classes > TOP}


def mean_row(rows: Sequence[Row]) -> Row:
    """The scores of a data set; exact in any order of its images."""
    names = [name for name in ("accuracy", "top5") if name in rows[0]]
    found: Row = {name: fsum(row[name] for row in rows) / len(rows) for name in names}
    hits: dict[int, list[float]] = {}
    for row in rows:
        hits.setdefault(int(row["label"]), []).append(row["accuracy"])
    found["class_accuracy"] = fsum(fsum(values) / len(values) for values in hits.values()) / len(hits)
    found["nll"] = fsum(row["nll"] for row in rows) / len(rows)
    return found
