"""The nine numbers of monocular depth (Eigen et al. 2014): of one image, over its n measured pixels, in metres."""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float64

from densevit.evaluation.metrics import register_metrics
from densevit.ops.align import dot_single_thread

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
register_metrics("depth", FORMULAE)
register_metrics("depth", {name: FORMULAE[name] for name in ("d1", "d2", "d3")}, "max")
"""In words, for prediction p and ground truth d."""

SilogForm = Literal["percent", "half", "unbiased", "log10"]
"""Four numbers are published under this name; `silog_form` says which."""

LogBase = Literal["ln", "log10"]


def depth_metrics(
    prediction: Float64[np.ndarray, " n"],
    depth: Float64[np.ndarray, " n"],
    *,
    silog: SilogForm = "percent",
    rmse_log: LogBase = "ln",
    epsilon: float = 0.0,
) -> Metrics:
    """The nine metrics of positive depths.

    SILog is of the centred variance: mean(e^2) - mean(e)^2, as published code has it, goes negative by rounding.
    `rmse_log`: its logarithm; `epsilon`: metres added to the ground truth under AbsRel's fraction (MoGe: 1e-6).
    """
    p, d, n = prediction, depth, depth.size
    # Products of vectors and reused memory: fresh arrays of this size cost more than the arithmetic in them.
    errors = p - d
    relative = errors / d
    square, square_relative = dot_single_thread(errors, errors) / n, dot_single_thread(errors, relative) / n
    absolute_relative = _mean_size(errors / (d + epsilon) if epsilon else relative)
    ratio = np.divide(p, d, out=relative)
    off_by = np.maximum(ratio, np.divide(d, p, out=errors), out=errors)
    d1, d2, d3 = (float(np.count_nonzero(off_by < 1.25**k) / n) for k in (1, 2, 3))
    logs = np.log(ratio, out=ratio)
    square_log = dot_single_thread(logs, logs) / n
    mean_log = float(logs.mean())
    centred = np.subtract(logs, mean_log, out=errors)
    return {
        "abs_rel": absolute_relative,
        "sq_rel": square_relative,
        "rmse": math.sqrt(square),
        "rmse_log": math.sqrt(square_log) / (math.log(10) if rmse_log == "log10" else 1),
        "log10": _mean_size(logs) / math.log(10),
        "silog": silog_form(silog, dot_single_thread(centred, centred), mean_log, n),
        "d1": d1,
        "d2": d2,
        "d3": d3,
    }


def silog_form(form: SilogForm, squares: float, mean: float, n: int) -> float:
    """One of the numbers called SILog.

    percent: 100 sqrt(var) (bts and most); half: sqrt(var + mean^2 / 2) (Depth Anything V2's metric models); unbiased:
    percent with n - 1 for n (UniDepth), 0 of one pixel; log10: sqrt(var) of decimal logarithms (Metric3D). `squares`:
    sum of (e - mean)^2, with e the difference of natural logarithms; `mean`: of e.
    """
    if form == "half":
        return math.sqrt(squares / n + mean * mean / 2)
    if form == "unbiased":
        return 100 * math.sqrt(squares / max(n - 1, 1))
    if form == "log10":
        return math.sqrt(squares / n) / math.log(10)
    return 100 * math.sqrt(squares / n)


def _mean_size(values: Float64[np.ndarray, " n"]) -> float:
    """The mean absolute value; overwrites its argument."""
    return float(np.abs(values, out=values).mean())
