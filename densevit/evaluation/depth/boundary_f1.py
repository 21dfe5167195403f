"""F1 of depth boundaries between neighbouring pixels. h x w pixels, positive depths.

There is a boundary between two neighbours if one is at least so many times as far as the other. Only neighbours that
both have ground truth count; with dense ground truth these are the published numbers.
"""

import numpy as np
from jaxtyping import Bool, Float64

Map = Float64[np.ndarray, "h w"]
Mask = Bool[np.ndarray, "h w"]

DEPTH_PRO = np.linspace(1.05, 1.25, 10)  # Bochkovskii et al. 2024
MOGE = 1 + np.linspace(0.05, 0.25, 10)  # Wang et al. 2025; weights are the thresholds - 1


def boundary_depth_pro(prediction: Map, gt: Map, valid: Mask) -> float:
    """Scale-invariant boundary F1 of Depth Pro: precision and recall are means over the four directions.

    Ratios are of inverse depth; each threshold is weighted by its value.
    """
    recalls, precisions = np.zeros(len(DEPTH_PRO)), np.zeros(len(DEPTH_PRO))
    for dy, dx in ((0, 1), (1, 0)):
        here, there = _pair(dy, dx)
        both = valid[here] & valid[there]
        p, t = (prediction[here] / prediction[there])[both], (gt[here] / gt[there])[both]
        for ratio_p, ratio_t in ((p, t), (1 / p, 1 / t)):
            hits, found, actual = _counts(ratio_p, ratio_t, DEPTH_PRO)
            recalls += hits / np.maximum(actual, 1) / 4
            precisions += hits / np.maximum(found, 1) / 4
    return float(_f1(precisions, recalls) @ DEPTH_PRO / DEPTH_PRO.sum())


def boundary_moge(prediction: Map, gt: Map, valid: Mask, radius: int) -> float:
    """Boundary F1 of MoGe: every pixel against those at most `radius` pixels away, all pairs counted together.

    Pixels closer to the image border than that are only compared as neighbours of others. NaN where there are no
    others.
    """
    if min(gt.shape) <= 2 * radius:
        return float("nan")
    hits, found, actual = (np.zeros(len(MOGE)) for _ in range(3))
    inner = slice(radius, -radius), slice(radius, -radius)
    h, w = gt.shape
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            if (dy, dx) == (0, 0) or dy * dy + dx * dx > radius * radius:
                continue
            other = slice(radius + dy, h - radius + dy), slice(radius + dx, w - radius + dx)
            both = valid[inner] & valid[other]
            p, t = (prediction[other] / prediction[inner])[both], (gt[other] / gt[inner])[both]
            for total, count in zip((hits, found, actual), _counts(p, t, MOGE), strict=True):
                total += count
    weights = MOGE - 1
    return float(_f1(hits / np.maximum(actual, 1), hits / np.maximum(found, 1)) @ weights / weights.sum())


def _pair(dy: int, dx: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """All pixels with a neighbour at (dy, dx), and these neighbours."""
    return (slice(None, -dy or None), slice(None, -dx or None)), (slice(dy, None), slice(dx, None))


def _counts(
    prediction: Float64[np.ndarray, " n"], gt: Float64[np.ndarray, " n"], thresholds: Float64[np.ndarray, " k"]
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Counts of ratios over each threshold: in both, in the prediction, in the ground truth."""
    least = thresholds[0]
    both = np.minimum(prediction, gt)
    return tuple(_over(np.sort(r[r > least]), thresholds) for r in (both, prediction, gt))  # type: ignore[return-value]


def _over(ratios: Float64[np.ndarray, " n"], thresholds: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    return (ratios.size - np.searchsorted(ratios, thresholds, side="right")).astype(np.float64)


def _f1(precision: Float64[np.ndarray, " k"], recall: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    total = precision + recall
    f1: Float64[np.ndarray, " k"] = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    return f1
