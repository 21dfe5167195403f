"""Average precision and recall of masks (COCO; Lin et al. 2014), equal to pycocotools.

Detections of a class in an image are matched in the order of their scores, each to the free object of the largest IoU
at ten thresholds. Objects outside a range of areas, and crowds, are ignored, and so are detections that match them.
n objects, d detections, k classes, a ranges of areas, t thresholds, h x w pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Integer

from densevit.evaluation.bootstrap import DRAWS, FEWEST, Bootstrap, draw
from densevit.evaluation.scores import register_metrics
from densevit.structures import Row

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
AREAS = np.array([(0, 1e10), (0, 32**2), (32**2, 96**2), (96**2, 1e10)])
SIZES = {"": 0, "_small": 1, "_medium": 2, "_large": 3}
MAX_DETECTIONS = (1, 10, 100)
BUDGET = 10**9  # detections times thresholds times draws of an interval

OF_SIZE = {"_small": "up to 32 x 32", "_medium": "32 x 32 to 96 x 96", "_large": "96 x 96 and more"}
RECALL = "mean over classes and IoU thresholds of the recall of the {} highest scores of a class in each image"
FORMULAE = {
    "ap": "mean over classes and IoU thresholds 0.5 to 0.95 of the precision at 101 recalls",
    "ap50": "the same at IoU 0.5",
    "ap75": "the same at IoU 0.75",
    **{f"ap{size}": f"ap of objects of {pixels} pixels" for size, pixels in OF_SIZE.items()},
    **{f"ar{n}": RECALL.format(n) for n in MAX_DETECTIONS},
    **{f"ar{size}": f"ar100 of objects of {pixels} pixels" for size, pixels in OF_SIZE.items()},
    "f1": "2 hits / (objects + detections) of detections of a score over 0.5, at IoU 0.5; 1 where there is neither",
}
register_metrics("instances", FORMULAE, "max")


@dataclass(frozen=True, eq=False)
class Matches:
    """The detections of one image, for each class in the order of their scores."""

    classes: Int64[np.ndarray, " d"]
    scores: Float[np.ndarray, " d"]
    rank: Int64[np.ndarray, " d"]  # among those of its class
    hit: Bool[np.ndarray, "a t d"]
    ignored: Bool[np.ndarray, "a t d"]
    objects: Int64[np.ndarray, "a k"]  # that count

    def row(self) -> Row:
        """Return the scores of the image by itself."""
        sure = (self.scores > 0.5) & ~self.ignored[0, 0]
        objects, detections, hits = (float(x.sum()) for x in (self.objects[0], sure, self.hit[0, 0][sure]))
        total = objects + detections
        return {"f1": 2 * hits / total if total else 1.0, "objects": objects, "detections": detections}


def match(
    masks: Bool[np.ndarray, "d h w"],
    classes: Integer[np.ndarray, " d"],
    scores: Float[np.ndarray, " d"],
    true_masks: Bool[np.ndarray, "n h w"],
    true_classes: Integer[np.ndarray, " n"],
    crowd: Bool[np.ndarray, " n"],
    areas: Float[np.ndarray, " n"],
    num_classes: int,
) -> Matches:
    """Match the detections of one image.

    Args:
        areas: of the objects in pixels, as the data set says.
    """
    outside = (areas < AREAS[:, :1]) | (areas > AREAS[:, 1:])
    objects = np.stack([np.bincount(true_classes[~(crowd | out)], minlength=num_classes) for out in outside])
    order = np.argsort(-scores, kind="stable")
    order = order[np.argsort(classes[order], kind="stable")]
    rank = np.concatenate([np.arange(n) for n in np.unique(classes, return_counts=True)[1]] or [order])
    order, rank = order[rank < MAX_DETECTIONS[-1]], rank[rank < MAX_DETECTIONS[-1]]
    classes, scores, masks = classes[order], scores[order], masks[order]
    sizes = masks.sum((1, 2))
    hit, ignored = (np.zeros((len(AREAS), len(THRESHOLDS), len(order)), np.bool_) for _ in range(2))
    for name in np.intersect1d(classes, true_classes):
        d, g = np.flatnonzero(classes == name), np.flatnonzero(true_classes == name)
        iou = _iou(masks[d], true_masks[g], crowd[g])
        for a, out in enumerate(outside):
            hit[a][:, d], ignored[a][:, d] = _greedy(iou, crowd[g], crowd[g] | out[g])
    other_size = (sizes < AREAS[:, :1]) | (sizes > AREAS[:, 1:])
    return Matches(classes, scores, rank, hit, ignored | (other_size[:, None] & ~hit), objects)


def _iou(
    masks: Bool[np.ndarray, "d h w"], others: Bool[np.ndarray, "n h w"], crowd: Bool[np.ndarray, " n"]
) -> Float64[np.ndarray, "d n"]:
    """IoU; of a crowd the share of the detection that it covers."""
    one, two = (x.reshape(len(x), -1).astype(np.float32) for x in (masks, others))  # whole numbers up to 2**24
    common = (one @ two.T).astype(np.float64)
    union = np.where(crowd, 0, two.sum(1) - common) + one.sum(1)[:, None]
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0))


def _greedy(
    iou: Float64[np.ndarray, "d n"], crowd: Bool[np.ndarray, " n"], ignore: Bool[np.ndarray, " n"]
) -> tuple[Bool[np.ndarray, "t d"], Bool[np.ndarray, "t d"]]:
    """Return whether each detection matches an object, and whether that is ignored."""
    order = np.argsort(ignore, kind="stable")
    iou, crowd, ignore = iou[:, order], crowd[order], ignore[order]
    hit, ignored = (np.zeros((len(THRESHOLDS), len(iou)), np.bool_) for _ in range(2))
    for t, least in enumerate(THRESHOLDS):
        free = np.ones(len(crowd), np.bool_)
        for d, row in enumerate(iou):
            able = (free | crowd) & (row >= least)
            able &= ~ignore if (able & ~ignore).any() else ignore  # what counts comes first
            if able.any():
                best = len(row) - 1 - np.where(able, row, -1)[::-1].argmax()  # of equal ones the last, as there
                hit[t, d], ignored[t, d], free[best] = True, ignore[best], False
    return hit, ignored


def average_precision(images: Sequence[Matches]) -> tuple[Row, dict[str, Float64[np.ndarray, " k"]]]:
    """Return the scores of a data set, and `ap`, `ap50` and `ar100` of each class; NaN where no object counts."""
    joined = _joined(images)
    precision, recall = (np.full((len(AREAS), len(MAX_DETECTIONS), joined.num_classes, len(THRESHOLDS)), np.nan)
                         for _ in range(2))  # fmt: skip
    one = np.ones((1, len(images)))
    for a in range(len(AREAS)):
        for k in np.flatnonzero(joined.objects[:, a].sum(0)).tolist():
            for m, most in enumerate(MAX_DETECTIONS):
                if a == 0 or most == MAX_DETECTIONS[-1]:
                    precision[a, m, k], recall[a, m, k] = (x[0] for x in joined.curve(a, k, most, one))
    ap, ar = precision[:, -1], recall[:, -1]
    scores = {f"ap{size}": ap[a] for size, a in SIZES.items()} | {"ap50": ap[0, :, :1], "ap75": ap[0, :, 5:6]}
    scores |= {f"ar{most}": recall[0, m] for m, most in enumerate(MAX_DETECTIONS)}
    scores |= {f"ar{size}": ar[a] for size, a in SIZES.items() if size}
    means = {name: float(np.nanmean(values)) for name, values in scores.items() if np.isfinite(values).any()}
    return (
        {name: means[name] for name in FORMULAE if name in means},
        {"ap": ap[0].mean(1), "ap50": ap[0, :, 0], "ar100": ar[0].mean(1)},
    )


def bootstrap_precision(images: Sequence[Matches], groups: Sequence[str]) -> dict[str, Bootstrap]:
    """Return `ap`, `ap50` and `ap75` over redrawn images. `groups`: what is drawn as a whole, the scene for example."""
    names, group = np.unique(np.array(groups), return_inverse=True)
    if len(names) < FEWEST:
        return {}
    joined = _joined(images)
    draws = int(np.clip(BUDGET // (len(joined.scores) * len(THRESHOLDS) + 1), 200, DRAWS))
    weights = draw(len(names))[:draws, group]
    total, classes = np.zeros((draws, len(THRESHOLDS))), np.zeros((draws, 1))
    for k in np.flatnonzero(joined.objects[:, 0].sum(0)).tolist():
        block = max(1, 4 * 10**6 // (len(THRESHOLDS) * int((joined.classes == k).sum()) + 1))
        for start in range(0, draws, block):
            precision, _ = joined.curve(0, k, MAX_DETECTIONS[-1], weights[start : start + block])
            classes[start : start + block] += np.isfinite(precision[:, :1])
            total[start : start + block] += np.nan_to_num(precision)
    ap = total / np.maximum(classes, 1)
    values = {"ap": ap.mean(1), "ap50": ap[:, 0], "ap75": ap[:, 5]}
    return {name: Bootstrap(x, len(names)) for name, x in values.items()}


@dataclass(frozen=True, eq=False)
class _Joined(Matches):
    """The detections of all images, the highest scores first."""

    objects: Int64[np.ndarray, "images a k"]
    image: Int64[np.ndarray, " d"]

    @property
    def num_classes(self) -> int:
        return int(self.objects.shape[-1])

    def curve(
        self, area: int, k: int, most: int, weights: Float64[np.ndarray, "draws images"]
    ) -> tuple[Float64[np.ndarray, "draws t"], Float64[np.ndarray, "draws t"]]:
        """Return the mean precision and last recall of a class, each image counting `weights` times; NaN without an
        object."""
        selected = np.flatnonzero((self.classes == k) & (self.rank < most))
        hit, counts = self.hit[area][:, selected], ~self.ignored[area][:, selected]
        weight = weights[:, None, self.image[selected]]
        true, false = (np.cumsum(weight * x, -1) for x in (hit & counts, ~hit & counts))
        objects = (weights @ self.objects[:, area, k])[:, None, None]
        if not selected.size:
            none = np.where(objects[..., 0] > 0, np.zeros(len(THRESHOLDS)), np.nan)
            return none, none
        recall = np.divide(true, objects, out=np.full_like(true, np.nan), where=objects > 0)
        precision = true / (true + false + np.spacing(1))
        envelope = np.maximum.accumulate(precision[..., ::-1], -1)[..., ::-1]
        return _at_recalls(recall, envelope), recall[..., -1]


def _at_recalls(
    recall: Float64[np.ndarray, "draws t d"], precision: Float64[np.ndarray, "draws t d"]
) -> Float64[np.ndarray, "draws t"]:
    """Return the mean over RECALLS of the precision where each is first reached; 0 where it is not."""
    means = np.empty(recall.shape[:2])
    for index in np.ndindex(*means.shape):
        at = np.searchsorted(recall[index], RECALLS, side="left")
        means[index] = np.append(precision[index], 0.0)[at].sum() / len(RECALLS)
    return np.where(np.isfinite(recall[..., -1]), means, np.nan)


def _joined(images: Sequence[Matches]) -> _Joined:
    image = np.repeat(np.arange(len(images)), [len(one.scores) for one in images])
    scores = np.concatenate([one.scores for one in images])
    order = np.argsort(-scores, kind="stable")
    hit, ignored = (
        np.concatenate([getattr(one, name) for one in images], -1)[..., order] for name in ("hit", "ignored")
    )
    classes, rank = (np.concatenate([getattr(one, name) for one in images])[order] for name in ("classes", "rank"))
    objects = np.stack([one.objects for one in images])
    return _Joined(classes, scores[order], rank, hit, ignored, objects, image[order])
