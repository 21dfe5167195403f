"""The nine numbers of monocular depth (Eigen et al. 2014): of one image, over its n measured pixels, in metres."""

import math

import numpy as np
from jaxtyping import Float64

Metrics = dict[str, float]

METRICS = ("abs_rel", "sq_rel", "rmse", "rmse_log", "log10", "silog", "d1", "d2", "d3")
"""Their names, in the order of the tables; the deltas are better when larger, the others when smaller."""

FORMULAE = {
    "abs_rel": "mean(|d - p| / d)",
    "sq_rel": "mean((d - p)^2 / d), in metres",
    "rmse": "sqrt(mean((d - p)^2)), in metres",
    "rmse_log": "sqrt(mean((ln d - ln p)^2))",
    "log10": "mean(|log10 d - log10 p|)",
    "silog": "100 sqrt(var(ln p - ln d))",
    "d1": "share of pixels with max(p / d, d / p) < 1.25",
    "d2": "share of pixels with max(p / d, d / p) < 1.25^2",
    "d3": "share of pixels with max(p / d, d / p) < 1.25^3",
}
"""In words, for prediction p and truth d."""


def depth_metrics(prediction: Float64[np.ndarray, " n"], depth: Float64[np.ndarray, " n"]) -> Metrics:
    """The nine metrics of positive depths.

    SILog is the centred variance: mean(e^2) - mean(e)^2, as published code has it, goes negative by rounding.
    """
    p, d, n = prediction, depth, depth.size
    # Products of vectors and reused memory: fresh arrays of this size cost more than the arithmetic in them.
    errors = p - d
    relative = errors / d
    square, square_relative = errors @ errors / n, errors @ relative / n
    absolute_relative = _mean_size(relative)
    ratio = np.divide(p, d, out=relative)
    off_by = np.maximum(ratio, np.divide(d, p, out=errors), out=errors)
    d1, d2, d3 = (float(np.count_nonzero(off_by < 1.25**k) / n) for k in (1, 2, 3))
    logs = np.log(ratio, out=ratio)
    square_log = logs @ logs / n
    centred = np.subtract(logs, logs.mean(), out=errors)
    return {
        "abs_rel": absolute_relative,
        "sq_rel": float(square_relative),
        "rmse": math.sqrt(square),
        "rmse_log": math.sqrt(square_log),
        "log10": _mean_size(logs) / math.log(10),
        "silog": 100 * math.sqrt(centred @ centred / n),
        "d1": d1,
        "d2": d2,
        "d3": d3,
    }


def _mean_size(values: Float64[np.ndarray, " n"]) -> float:
    """The mean absolute value; overwrites its argument."""
    return float(np.abs(values, out=values).mean())
