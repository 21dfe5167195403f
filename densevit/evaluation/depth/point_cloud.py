"""Depth as a cloud of points: how many points of either cloud have a point of the other near them. Metres."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64

from densevit.errors import DataError
from densevit.ops.geometry import backproject

MOST = 240 * 320  # points of a cloud; UniDepth thins denser ones to as many
NEAREST = 0.005  # metres, where UniDepth's thresholds begin

Map = Float64[np.ndarray, "h w"]


def point_metrics(
    prediction: Map,
    gt: Map,
    valid: Bool[np.ndarray, "h w"],
    intrinsics: Float[np.ndarray, "3 3"] | None,
    *,
    furthest: float,
) -> dict[str, float]:
    """F-scores and chamfer distance of the pixels with ground truth. `furthest`: metres that there may be; UniDepth's
    thresholds end at a twentieth of it. Raises DataError if the camera is not known."""
    if intrinsics is None:
        raise DataError("point clouds need the camera's intrinsics, and the data set gives none.")
    rows, columns = subsample(valid)
    kept = valid[rows[:, None], columns]
    clouds = [
        backproject(depth, np.asarray(intrinsics, np.float64))[rows[:, None], columns][kept]
        for depth in (prediction, gt)
    ]
    to_gt, to_prediction = _distances(*clouds)
    end: float = furthest if np.isfinite(furthest) else float(gt[valid].max())
    thresholds = [float(t) for t in np.geomspace(NEAREST, max(end / 20, 2 * NEAREST), 100)]
    # UniDepth compares its thresholds with squared distances.
    curve: list[float] = [_f1(to_gt**2, to_prediction**2, threshold) for threshold in thresholds]
    area = sum(curve) - (curve[0] + curve[-1]) / 2  # trapezoids
    return {
        "f_score_5cm": _f1(to_gt, to_prediction, 0.05),
        "f_score_25cm": _f1(to_gt, to_prediction, 0.25),
        "f_auc": area / len(curve),
        "chamfer": float((to_gt.mean() + to_prediction.mean()) / 2),
    }


def subsample(valid: Bool[np.ndarray, "h w"]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns that leave about MOST points, evenly: nearest neighbours of a smaller map's pixels."""
    ratio = min(1.0, (MOST / max(int(np.count_nonzero(valid)), 1)) ** 0.5)
    h, w = valid.shape
    return _evenly(h, ratio), _evenly(w, ratio)


def _evenly(side: int, ratio: float) -> np.ndarray:
    small = max(int(side * ratio), 1)
    return np.minimum(((np.arange(small) + 0.5) * (side / small)).astype(np.intp), side - 1)


def _distances(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From each point to the nearest of the other cloud."""
    from scipy.spatial import cKDTree  # scikit-image's and albumentations' own requirement

    trees: list[Any] = [cKDTree(one), cKDTree(other)]
    return trees[1].query(one)[0], trees[0].query(other)[0]


def _f1(to_gt: np.ndarray, to_prediction: np.ndarray, threshold: float) -> float:
    precision, recall = float((to_gt < threshold).mean()), float((to_prediction < threshold).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
