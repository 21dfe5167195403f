"""Whether predictions are in metres, by comparing them with the ground truth before they are scored."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float

FACTOR = 2.0  # between medians, from which on the unit is in doubt; a poor model is off by less
UNITS = (1, 100, 256, 1000, 5000, 1 / 100, 1 / 256, 1 / 1000, 1 / 5000)  # stored units per metre
TOLERANCE = 1.5  # factor by which a median may miss the unit that it tells
INVERSE = -0.5  # rank correlation under which predictions are taken for inverse depth
MAX_PIXELS = 5000  # of an image, for the ranks

Maps = tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]
"""Prediction, depth, and where depth was measured."""


def unit_warning(pairs: Iterable[Maps], scale: float | None = None) -> str:
    """What is wrong with the unit of metric predictions, and how to mend it; empty where nothing is. `pairs`: of some
    images; `scale`: stored units per metre by which the predictions were divided; None if they were not."""
    medians, correlations = [], []
    for prediction, depth, valid in pairs:
        both = valid & (prediction > 0) & np.isfinite(prediction)
        if np.count_nonzero(both) < 10:
            continue
        p, d = prediction[both], depth[both]
        medians.append((float(np.median(p)), float(np.median(d))))
        correlations.append(_rank_correlation(p, d))
    if not medians:
        return ""
    p_median, d_median = (float(np.median(column)) for column in zip(*medians, strict=True))
    ratio = float(np.median([p / d for p, d in medians]))
    times = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
    text = f"the median prediction is {p_median:.4g} m, {times} times that of the ground truth, {d_median:.4g} m"
    if np.median(correlations) < INVERSE:
        return (
            f"predictions fall where depth rises (rank correlation {np.median(correlations):.2f}; {text}): they look "
            "like inverse depth. Use --prediction-type disparity, or invert them."
        )
    if 1 / FACTOR <= ratio <= FACTOR:
        return ""
    divisor = (scale or 1.0) * ratio
    unit = min(UNITS, key=lambda unit: abs(np.log(divisor / unit)))
    if abs(np.log(divisor / unit)) > np.log(TOLERANCE) or unit == scale:
        return f"{text}. If the predictions are only known up to a factor, use --align median."
    stored = f"{unit:g} units per metre" if unit >= 1 else f"units of {1 / unit:g} m"
    return f"{text}: predictions look like {stored}. Use --scale {unit:g}."


def _rank_correlation(p: Float[np.ndarray, " n"], d: Float[np.ndarray, " n"]) -> float:
    """Spearman's; 0 of constant values."""
    step = max(1, p.size // MAX_PIXELS)
    ranks = [np.unique(values[::step], return_inverse=True)[1] for values in (p, d)]
    if min(np.ptp(rank) for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
