"""Segmentation metrics (mIoU, pixel accuracy, boundary IoU, ...) from pixel counts per class. k classes, n images.

Pixels (h x w) are pooled over all images before anything is divided, as in mmseg: a large image weighs more than a
small one, and numbers do not depend on how images are batched.
"""

import math
from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Bool, Float, Int, Int64
from numpy.typing import ArrayLike

from densevit.errors import DataError
from densevit.evaluation.scores import register_metrics
from densevit.structures import IGNORE, Row

Ids = Int[np.ndarray, "h w"]
PredictedIds = Int[np.ndarray, "height width"]
"""Predicted class ids; the size is checked against the labels."""
IntersectionStats = Int64[np.ndarray, "3 k"]
"""Pixels of each class: intersection of prediction and label, labelled, predicted."""

HITS, TRUE, PREDICTED = 0, 1, 2
NAMES = ("hits", "true", "predicted")

FORMULAE = {
    "miou": "mean over classes of hits / (true + predicted - hits); classes neither true nor predicted are left out",
    "pixel_accuracy": "hits / labelled pixels",
    "mean_accuracy": "mean over the classes that occur of hits / true",
    "fwiou": "mean over classes of the IoU, weighted by their share of the labelled pixels",
    "boundary_iou": "miou of the pixels within 2% of the diagonal from their region's border (Cheng et al. 2021)",
}
register_metrics("segmentation", FORMULAE, "max")


def confusion(predicted: PredictedIds, labels: Ids, classes: int) -> Int64[np.ndarray, "k m"]:
    """Return the labelled pixels of class (row) that were predicted as class (column).

    The last of m = k + 1 columns counts those that were predicted as none of the classes: they are hits of nothing.
    Raises DataError if the maps differ in size; a label is beyond the classes.
    """
    if predicted.shape != labels.shape:
        raise DataError(f"a label map of {_size(predicted)} cannot be scored against labels of {_size(labels)}.")
    labelled = labels != IGNORE
    gt, pred = labels[labelled].astype(np.int64), predicted[labelled].astype(np.int64)
    if gt.size and not 0 <= gt.min() <= gt.max() < classes:
        worst = int(gt.min() if gt.min() < 0 else gt.max())
        raise DataError(f"label {worst} is not among the {classes} classes; the one to ignore is {IGNORE}.")
    pred = np.where((pred >= 0) & (pred < classes), pred, classes)
    counts = np.bincount(gt * (classes + 1) + pred, minlength=classes * (classes + 1))
    return np.asarray(counts.reshape(classes, classes + 1))


def _size(ids: Ids) -> str:
    return "x".join(map(str, ids.shape))


def areas(counts: Int64[np.ndarray, "k m"]) -> IntersectionStats:
    """Return the intersection, labelled and predicted pixels of each class, from a confusion matrix."""
    k = len(counts)
    return np.stack([counts.diagonal(), counts.sum(1), counts[:, :k].sum(0)])


def iou(stats: Int[np.ndarray, "*n 3 k"]) -> Float[np.ndarray, "*n k"]:
    """Return the intersection over union of each class; NaN for one that is neither true nor predicted."""
    hits, true, predicted = stats[..., HITS, :], stats[..., TRUE, :], stats[..., PREDICTED, :]
    return share(hits, true + predicted - hits)


def scores(stats: Int[np.ndarray, "*n 3 k"]) -> dict[str, Float[np.ndarray, "*n"]]:
    """Return the four scores of summed areas; NaN where there is no labelled pixel."""
    hits, true = stats[..., HITS, :], stats[..., TRUE, :]
    per_class = iou(stats)
    return {
        "miou": mean(per_class),
        "pixel_accuracy": share(hits.sum(-1), true.sum(-1)),
        "mean_accuracy": mean(share(hits, true)),
        "fwiou": share((true * np.nan_to_num(per_class)).sum(-1), true.sum(-1)),
    }


def share(part: ArrayLike, whole: ArrayLike) -> Float[np.ndarray, "*n"]:
    """Return part / whole, NaN where whole is 0."""
    whole = np.asarray(whole)
    return np.asarray(np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0))


def mean(values: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n"]:
    """Return the mean over the classes that have a value."""
    valid = ~np.isnan(values)
    return share(np.where(valid, values, 0.0).sum(-1), valid.sum(-1))


def as_row(predicted: PredictedIds, labels: Ids, classes: int) -> Row:
    """Return the areas of one image as numbers by name, `hits/3`; those of 0 pixels are left out. Empty without
    labels."""
    stats = areas(confusion(predicted, labels, classes))
    if not stats[TRUE].any():
        return {}
    return {f"{NAMES[kind]}/{c}": float(stats[kind, c]) for kind, c in np.argwhere(stats)}


def pooled_scores(rows: Sequence[Row]) -> Row:
    """Return the scores of the pooled pixels of all images."""
    total: dict[tuple[int, int], float] = {}
    for row in rows:
        for name, count in row.items():
            kind, _, index = name.partition("/")
            key = NAMES.index(kind), int(index)
            total[key] = total.get(key, 0.0) + count
    # Classes beyond the last that occurs are neither true nor predicted, and so in none of the scores.
    stats = np.zeros((len(NAMES), 1 + max(index for _, index in total)), np.int64)
    for key, count in total.items():
        stats[key] = int(count)
    return {name: float(value) for name, value in scores(stats).items()}


REACH = 0.02  # of the image's diagonal: the paper's choice for images of COCO's, ADE20K's and Cityscapes' size


def boundary_areas(predicted: Ids, labels: Ids, classes: int) -> IntersectionStats:
    """Return the pixels of each class within reach of the border of their region: both, ground truth, prediction.

    Pixels that are to be ignored are left out of both maps alike, so that they make a border in either.
    """
    labelled = labels != IGNORE
    # An id of its own for what is ignored, and one for what was predicted as no class.
    gt = np.where(labelled, labels, classes)
    pred = np.where(labelled, np.where((predicted >= 0) & (predicted < classes), predicted, classes + 1), classes)
    near_gt, near_pred = boundary_mask(gt), boundary_mask(pred)
    counted = (near_gt & near_pred & (gt == pred), near_gt, near_pred)
    ids = (gt, gt, pred)
    return np.stack([np.bincount(i[c], minlength=classes)[:classes] for i, c in zip(ids, counted, strict=True)])


def boundary_mask(ids: Int[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """Return the pixels within reach of another id or of the image's edge, diagonals counted as one step."""
    distance = max(1, round(REACH * math.hypot(*ids.shape)))
    around = np.ones((2 * distance + 1, 2 * distance + 1), np.uint8)
    values = ids.astype(np.int16)
    # A pixel is inside its region where the least and the largest id around it are its own; beyond the edge is -1.
    least = cv2.erode(values, around, borderType=cv2.BORDER_CONSTANT, borderValue=(-1.0,) * 4)
    largest = cv2.dilate(values, around)
    return np.asarray((least != values) | (largest != values))
