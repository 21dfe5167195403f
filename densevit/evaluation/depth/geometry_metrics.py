"""Metrics of shape: F1 of depth boundaries, and of point clouds. h x w pixels, positive depths in metres.

There is a boundary between two neighbours if one is at least n times as far away as the other. Only neighbours that
both have ground truth count; with dense ground truth these are the published numbers. Of point clouds, it counts how
many points of either have a point of the other near them.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64

from densevit.errors import DataError
from densevit.ops.geometry import backproject

Map = Float64[np.ndarray, "h w"]
Mask = Bool[np.ndarray, "h w"]

DEPTH_PRO = np.linspace(1.05, 1.25, 10)  # Bochkovskii et al. 2024
MOGE = 1 + np.linspace(0.05, 0.25, 10)  # Wang et al. 2025; weights are the thresholds - 1


def boundary_depth_pro(prediction: Map, gt: Map, valid: Mask) -> float:
    """Return the scale-invariant boundary F1 of Depth Pro: precision and recall are means over the four directions.

    Ratios are of inverse depth; each threshold is weighted by its value.
    """
    recalls, precisions = np.zeros(len(DEPTH_PRO)), np.zeros(len(DEPTH_PRO))
    for dy, dx in ((0, 1), (1, 0)):
        here, there = _pair(dy, dx)
        both = valid[here] & valid[there]
        p, t = (m[here][both] / m[there][both] for m in (prediction, gt))
        for ratio_p, ratio_t in ((p, t), (1 / p, 1 / t)):
            hits, predicted, actual = _counts(ratio_p, ratio_t, DEPTH_PRO)
            recalls += hits / np.maximum(actual, 1) / 4
            precisions += hits / np.maximum(predicted, 1) / 4
    return float(_f1(precisions, recalls) @ DEPTH_PRO / DEPTH_PRO.sum())


def boundary_moge(prediction: Map, gt: Map, valid: Mask, radius: int) -> float:
    """Return the boundary F1 of MoGe: every pixel against those at most `radius` pixels away, all pairs counted
    together.

    Pixels closer to the image border than that are only compared as neighbours of others. NaN where there are no
    others.
    """
    if min(gt.shape) <= 2 * radius:
        return float("nan")
    hits, predicted, actual = (np.zeros(len(MOGE)) for _ in range(3))
    inner = slice(radius, -radius), slice(radius, -radius)
    h, w = gt.shape
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            if (dy, dx) == (0, 0) or dy * dy + dx * dx > radius * radius:
                continue
            other = slice(radius + dy, h - radius + dy), slice(radius + dx, w - radius + dx)
            both = valid[inner] & valid[other]
            p, t = (m[other][both] / m[inner][both] for m in (prediction, gt))
            for total, count in zip((hits, predicted, actual), _counts(p, t, MOGE), strict=True):
                total += count
    weights = MOGE - 1
    return float(_f1(hits / np.maximum(actual, 1), hits / np.maximum(predicted, 1)) @ weights / weights.sum())


def _pair(dy: int, dx: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Return all pixels with a neighbour at (dy, dx), and these neighbours."""
    return (slice(None, -dy or None), slice(None, -dx or None)), (slice(dy, None), slice(dx, None))


def _counts(
    prediction: Float64[np.ndarray, " n"], gt: Float64[np.ndarray, " n"], thresholds: Float64[np.ndarray, " k"]
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Count of ratios over each threshold: in both, in the prediction, in the ground truth."""
    least = thresholds[0]
    both = np.minimum(prediction, gt)
    over = (np.sort(ratios[ratios > least]) for ratios in (both, prediction, gt))
    hits, predicted, actual = (r.size - np.searchsorted(r, thresholds, side="right").astype(np.float64) for r in over)
    return hits, predicted, actual


def _f1(precision: Float64[np.ndarray, " k"], recall: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    total = precision + recall
    return np.asarray(np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0))


MOST = 240 * 320  # points of a cloud; UniDepth thins denser ones to as many
NEAREST = 0.005  # metres, where UniDepth's thresholds begin


def point_metrics(
    prediction: Map,
    gt: Map,
    valid: Mask,
    intrinsics: Float[np.ndarray, "3 3"] | None,
    *,
    furthest: float,
) -> dict[str, float]:
    """Return F-scores and chamfer distance of the pixels with ground truth. `furthest`: metres that there may be;
    UniDepth's thresholds end at a twentieth of it. Raises DataError if the camera is not known."""
    if intrinsics is None:
        raise DataError("point clouds need the camera's intrinsics, and the data set gives none.")
    rows, columns = subsample(valid)
    mask = valid[rows[:, None], columns]
    clouds = [
        backproject(depth, np.asarray(intrinsics, np.float64))[rows[:, None], columns][mask]
        for depth in (prediction, gt)
    ]
    to_gt, to_prediction = _distances(*clouds)
    end: float = furthest if np.isfinite(furthest) else float(gt[valid].max())
    thresholds = [float(t) for t in np.geomspace(NEAREST, max(end / 20, 2 * NEAREST), 100)]
    # UniDepth compares its thresholds with squared distances.
    curve: list[float] = [_f_score(to_gt**2, to_prediction**2, threshold) for threshold in thresholds]
    area = sum(curve) - (curve[0] + curve[-1]) / 2  # trapezoids
    return {
        "f_score_5cm": _f_score(to_gt, to_prediction, 0.05),
        "f_score_25cm": _f_score(to_gt, to_prediction, 0.25),
        "f_auc": area / len(curve),
        "chamfer": float((to_gt.mean() + to_prediction.mean()) / 2),
    }


def subsample(valid: Mask) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns that leave about MOST points, evenly: nearest neighbours of a smaller map's
    pixels."""
    ratio = min(1.0, (MOST / max(int(np.count_nonzero(valid)), 1)) ** 0.5)
    h, w = valid.shape
    return _evenly(h, ratio), _evenly(w, ratio)


def _evenly(side: int, ratio: float) -> np.ndarray:
    small = max(int(side * ratio), 1)
    return np.minimum(((np.arange(small) + 0.5) * (side / small)).astype(np.intp), side - 1)


def _distances(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance from each point to the nearest of the other cloud."""
    from scipy.spatial import cKDTree  # scikit-image's and albumentations' own requirement

    trees: list[Any] = [cKDTree(one), cKDTree(other)]
    return trees[1].query(one)[0], trees[0].query(other)[0]


def _f_score(to_gt: np.ndarray, to_prediction: np.ndarray, threshold: float) -> float:
    precision, recall = float((to_gt < threshold).mean()), float((to_prediction < threshold).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
