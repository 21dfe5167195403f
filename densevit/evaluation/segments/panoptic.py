"""Panoptic quality (Kirillov et al. 2019), as COCO's panopticapi computes it.

A predicted and a true segment of one class match where their IoU is over 0.5; pixels that are void in the ground truth
do not count for the union. A crowd matches nothing and is not missed, and a prediction that lies mostly on void, or on
void and the crowd of its class, is no false one. n segments, k classes, h x w pixels.
"""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64, Integer

from densevit.evaluation.scores import register_metrics
from densevit.structures import Row

Ids = Integer[np.ndarray, "h w"]
"""0 is void; s is row s - 1 of the classes."""

QualityStats = Float64[np.ndarray, "k 4"]
"""Of each class: the sum of the IoUs of matches, their number, false and missed segments."""

COLUMNS = ("iou", "hits", "false", "missed")
PARTS = {"": "all classes", "_things": "the classes of things", "_stuff": "the classes of stuff"}
FORMULAE = {
    "pq": "panoptic quality: sum of the IoUs of matches / (matches + false / 2 + missed / 2), mean over {}",
    "sq": "segmentation quality: mean IoU of the matches, mean over {}",
    "rq": "recognition quality: matches / (matches + false / 2 + missed / 2), mean over {}",
}
register_metrics(
    "panoptic", {name + tag: text.format(of) for tag, of in PARTS.items() for name, text in FORMULAE.items()}, "max"
)


def count(
    predicted: Ids,
    predicted_classes: Integer[np.ndarray, " p"],
    ids: Ids,
    classes: Integer[np.ndarray, " n"],
    crowd: Bool[np.ndarray, " n"],
    num_classes: int,
) -> QualityStats:
    """Match the segments of one image; segments without a pixel do not count."""
    n, p = len(classes), len(predicted_classes)
    pairs = np.bincount((ids.astype(np.int64) * (p + 1) + predicted).ravel(), minlength=(n + 1) * (p + 1))
    common = pairs.reshape(n + 1, p + 1)
    true, detected, void = common.sum(1)[1:], common.sum(0)[1:], common[0, 1:]
    common = common[1:, 1:]
    same = (classes[:, None] == predicted_classes) & ~crowd[:, None]
    iou = np.where(same, common / np.maximum(true[:, None] + detected - common - void, 1), 0.0)
    matched = iou > 0.5
    crowds = {int(classes[row]): row for row in np.flatnonzero(crowd & (true > 0))}  # of several the last, as there
    on_crowd = [common[crowds[c], i] if c in crowds else 0 for i, c in enumerate(predicted_classes.tolist())]
    excused = (void + np.array(on_crowd, np.int64)) / np.maximum(detected, 1) > 0.5
    missed = ~matched.any(1) & ~crowd & (true > 0)
    false = ~matched.any(0) & ~excused & (detected > 0)
    hits = classes[np.nonzero(matched)[0]]
    columns = [
        np.bincount(hits, iou[matched], num_classes),
        *(np.bincount(of, minlength=num_classes) for of in (hits, predicted_classes[false], classes[missed])),
    ]
    return np.stack(columns, 1).astype(np.float64)


def class_quality(stats: Float[np.ndarray, "*m k 4"]) -> dict[str, Float[np.ndarray, "*m k"]]:
    """Return `pq`, `sq` and `rq` of each class; NaN where it neither is nor was predicted."""
    iou, hits, false, missed = np.moveaxis(stats, -1, 0)
    total = hits + false / 2 + missed / 2
    with np.errstate(invalid="ignore"):
        return {
            "pq": iou / total,
            "sq": np.where(total > 0, iou / np.maximum(hits, 1e-300), np.nan),
            "rq": hits / total,
        }


def quality(stats: Float[np.ndarray, "*m k 4"], things: Collection[int]) -> dict[str, Float[np.ndarray, "*m"]]:
    """Return the means over all classes, those of things and those of stuff; NaN where none of them occurs."""
    is_thing = np.isin(np.arange(stats.shape[-2]), list(things))
    values = class_quality(stats)
    kinds = dict(zip(PARTS, (np.ones_like(is_thing), is_thing, ~is_thing), strict=True))
    return {name + tag: _mean(x[..., kind]) for tag, kind in kinds.items() for name, x in values.items()}


def _mean(values: Float[np.ndarray, "*m k"]) -> Float[np.ndarray, "*m"]:
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(finite, values, 0).sum(-1) / finite.sum(-1))


def as_row(stats: QualityStats) -> Row:
    """Return the counts of one image as numbers by name, `iou/3`, those of absent classes left out."""
    return {
        f"{column}/{k}": float(stats[k, i]) for k in np.flatnonzero(stats.any(1)) for i, column in enumerate(COLUMNS)
    }


def pooled(rows: Sequence[Row], num_classes: int, things: Collection[int]) -> Row:
    """Return the scores of a data set from `as_row` of its images."""
    stats = np.zeros((num_classes, 4))
    for row in rows:
        for name, value in row.items():
            column, _, k = name.partition("/")
            stats[int(k), COLUMNS.index(column)] += value
    return {name: float(value) for name, value in quality(stats, things).items() if np.isfinite(value)}
