"""Whether metric depth is off by one factor in all images, as a wrong unit or lens makes it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from densevit.structures import Row

Map = Float[np.ndarray, "h w"]

SCALE = ("median ratio", "relative error", "relative error at that ratio")  # of an image's row, beside its scores


def scale_row(prediction: Map, depth: Map, valid: Bool[np.ndarray, "h w"]) -> Row:
    """Return what `scale_warning` needs of an image; empty without valid ground truth."""
    usable: Bool[np.ndarray, "h w"] = valid & (prediction > 0) & np.isfinite(prediction)
    if not usable.any():
        return {}
    p, d = (values[usable][:: max(1, usable.sum() // 5000)] for values in (prediction, depth))
    ratio = float(np.median(p) / np.median(d))
    errors = (float(np.mean(np.abs(scaled - d) / d)) for scaled in (p, p / ratio))
    return dict(zip(SCALE, (ratio, *errors), strict=True))


def scale_warning(rows: Sequence[Row]) -> str:
    """Say that metric predictions are off by one factor in all images; empty where they are not."""
    if not rows:
        return ""
    ratios, before, after = np.array([[row[key] for key in SCALE] for row in rows]).T
    ratio, spread = float(np.median(ratios)), float(np.std(np.log(ratios)))
    if before.mean() < 2 * after.mean() or after.mean() > 0.25 or spread > 0.25 or abs(np.log(ratio)) < np.log(1.2):
        return ""
    return (
        f"predictions are {ratio:.3g} times the ground truth: AbsRel {before.mean():.3f}, and {after.mean():.3f} after "
        "median scaling. Look for another depth_scale in data.train than in data.val, a transform that zooms, or focal "
        "lengths (model.camera) of another image size."
    )
