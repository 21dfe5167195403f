"""Alignment of predictions without unit with the ground truth of one image, over its n measured pixels.

All in float64; pixels that are not finite are left out. An alignment is fitted to pixels and then applied to any array:
`ALIGNMENTS["lstsq"](prediction, depth, furthest)` returns a function of predictions.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

from densevit.errors import DataError
from densevit.structures import DepthKind


class NothingToFit(DataError):
    """No measured pixel has a prediction that could be fitted."""


HUBER = 1.345  # of the residuals' standard deviation: 95% efficient for normal errors (Huber 1964)
OUTLIER = 4.0  # standard deviations, beyond which a pixel does not count in a robust fit
ROUNDS, PAIRS, USED = 30, 500, 800  # of reweighting; lines to begin with, and pixels that judge them

Pixels = Float[np.ndarray, " n"]
Values = Float[np.ndarray, "..."]
Aligned = Callable[[Values], Values]


def disparity_as_depth(
    disparity: Float32[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"]
) -> Float32[np.ndarray, "h w"]:
    """Return the depth whose inverse is a disparity, both up to scale and shift; 0 where not valid.

    The inverse runs from 0.1 to 1.1 over the valid pixels, so that the furthest have finite depth. A loss that aligns
    the inverse by scale and shift is the same as with the disparity itself.
    """
    low, high = (disparity[valid].min(), disparity[valid].max()) if valid.any() else (0.0, 0.0)
    inverse = (disparity - low) / max(float(high - low), 1e-12) + np.float32(0.1)
    return np.where(valid, 1 / np.where(valid, inverse, 1), 0).astype(np.float32)


def least_squares(prediction: Pixels, target: Pixels) -> tuple[float, float]:
    """Scale and shift that minimise the squared error to the target.

    The scale of a constant prediction is 0, its shift the mean of the target. Raises DataError: no pixel to fit.
    """
    x, y = _finite(prediction, target)
    x_mean, y_mean = x.mean(), y.mean()
    dx = x - x_mean  # centred: the normal equations of raw sums lose the variance of a nearly constant prediction
    variance = dot_single_thread(dx, dx) / x.size
    rounding = (np.finfo(np.float64).eps * abs(x_mean)) ** 2 * x.size
    if variance <= rounding:
        return 0.0, float(y_mean)
    scale = dot_single_thread(dx, y - y_mean) / x.size / variance
    return float(scale), float(y_mean - scale * x_mean)


def least_absolute(prediction: Pixels, target: Pixels, weights: Pixels) -> tuple[float, float]:
    """Scale and shift that minimise the weighted sum of absolute errors (MoGe aligns so, with weights 1 / depth).

    For a given scale the best shift is a weighted median of the residuals, and the remaining error is convex in the
    scale: the sign of its derivative changes once, and bisection finds where. Raises DataError: no pixel to fit.
    """
    x, y, w = _finite(prediction, target, weights)
    centre = float(np.median(x))  # one of a constant, which its mean may miss by rounding
    x = x - centre  # the same line, better conditioned
    middle, _ = least_squares(x, y)
    reach = max(abs(middle), 1e-6)
    low, high = middle - reach, middle + reach
    while _slope(low, x, y, w) > 0 and reach < 1e12:
        low, reach = low - 2 * reach, 2 * reach
    while _slope(high, x, y, w) < 0 and reach < 1e12:
        high, reach = high + 2 * reach, 2 * reach
    while (scale := (low + high) / 2) not in (low, high):
        low, high = (low, scale) if _slope(scale, x, y, w) >= 0 else (scale, high)
    return high, weighted_median(y - high * x, w) - high * centre


def _slope(scale: float, x: Pixels, y: Pixels, w: Pixels) -> float:
    """Return the derivative of the weighted absolute error by the scale, the shift being the best for each scale."""
    rest = y - scale * x
    at = _median_index(rest, w)
    pull = w * np.sign(rest - rest[at])
    return float(pull.sum() * x[at] - dot_single_thread(pull, x))  # the median's own pixel balances the others


def weighted_median(values: Pixels, weights: Pixels) -> float:
    """Return the least value with at least half of the weight at or under it."""
    return float(values[_median_index(values, weights)])


def _median_index(values: Pixels, weights: Pixels) -> int:
    order = np.argsort(values, kind="stable")
    under = np.cumsum(weights[order])
    at = np.searchsorted(under, under[-1] / 2)
    return int(order[min(at, order.size - 1)])


def robust_line(x: Pixels, y: Pixels, weights: Pixels) -> tuple[float, float]:
    """Scale and shift of y from x: least median of weighted residuals over pairs of points (Rousseeuw 1984), then
    least squares with Huber's weights and without outliers."""
    line = least_median_line(x, y, weights)
    for _ in range(ROUNDS):
        rest = np.abs((line[0] * x + line[1] - y) * weights)
        spread = 1.4826 * float(np.median(rest)) + 1e-12
        huber = np.where(rest <= OUTLIER * spread, np.minimum(1, HUBER * spread / np.maximum(rest, 1e-12)), 0)
        w = weights * np.sqrt(huber)
        (scale, shift), *_ = np.linalg.lstsq(np.stack([x * w, w], 1), y * w, rcond=None)
        before, line = line, (float(scale), float(shift))
        if np.allclose(before, line, rtol=1e-6, atol=0):
            break
    return line


def least_median_line(x: Pixels, y: Pixels, weights: Pixels) -> tuple[float, float]:
    """Return the line through two of the points with the least median of weighted residuals, among `PAIRS` random
    pairs."""
    draw = np.random.default_rng(0)
    one, two = draw.integers(0, len(x), PAIRS), draw.integers(0, len(x), PAIRS)
    apart = np.abs(x[one] - x[two]) > 1e-9 * np.abs(x).max()
    if not apart.any():
        return 0.0, float(np.median(y))
    one, two = one[apart], two[apart]
    scale = (y[one] - y[two]) / (x[one] - x[two])
    shift = y[one] - scale * x[one]
    subset = np.linspace(0, len(x) - 1, min(len(x), USED)).astype(int)
    rest = np.abs((scale[:, None] * x[subset] + shift[:, None] - y[subset]) * weights[subset])
    best = int(np.argmin(np.median(rest, 1)))
    return float(scale[best]), float(shift[best])


def median_scale(prediction: Pixels, target: Pixels, median: Callable[[Any], Any] = np.median) -> float:
    """Return median(target) / median(prediction), as in self-supervised depth estimation (Zhou et al. 2017). `median`:
    of an even count; numpy takes the mean of the middle two. Raises DataError: no pixel to fit, or a median that is not
    positive."""
    x, y = _finite(prediction, target)
    middle = float(median(x))
    if middle <= 0:
        fault = DataError if (x > 0).any() else NothingToFit
        raise fault(f"the prediction's median is {middle:g}; median scaling needs depths over 0.")
    return float(median(y)) / middle


def lower_median(values: Values) -> float:
    """Return the lower of the middle two, as torch.median has it."""
    at = (values.size - 1) // 2
    return float(np.partition(values.ravel(), at)[at])


def by_log_least_squares(prediction: Pixels, depth: Pixels, furthest: float) -> Aligned:
    """Return the depth from depth whose logarithm is known up to scale and shift."""
    line = _line(*least_squares(_log(prediction), np.log(depth)))
    return lambda values: np.exp(line(_log(values)))


def by_least_absolute_scale(prediction: Pixels, depth: Pixels, furthest: float) -> Aligned:
    """Return the depth from depth known up to a scale, by weighted absolute errors: MoGe's scale-invariant depth."""
    x, y = _finite(prediction, depth)
    return _line(weighted_median(y / np.maximum(x, 1e-7), x / y))


ALIGNMENTS: dict[str, Callable[[Pixels, Pixels, float], Aligned]] = {
    # Known up to a scale: by medians, by torch's lower medians (UniDepth), best in log depth (Eigen et al. 2014).
    "median": lambda p, d, far: _line(median_scale(p, d)),
    "median_lower": lambda p, d, far: _line(median_scale(p, d, lower_median)),
    "log_scale": lambda p, d, far: _line(math.exp(float(np.subtract(*_finite(_log(d), _log(p))).mean()))),
    # Depth, and log depth, known up to scale and shift, as Marigold is scored.
    "lstsq": lambda p, d, far: _line(*least_squares(p, d)),
    "lstsq_log": by_log_least_squares,
    # Disparity known up to scale and shift, fitted to 1 / depth and floored before it is inverted: at 1 / the furthest
    # depth (MiDaS, DPT, Depth Anything); over 0 alone, at 1e-3 (Marigold); at 1 / the largest ground truth (MoGe).
    "lstsq_disparity": lambda p, d, far: _inverse(*least_squares(p, 1 / d), floor=1 / far),
    "lstsq_disparity_positive": lambda p, d, far: _inverse(*least_squares(p[p > 0], 1 / d[p > 0]), floor=1e-3),
    "lstsq_disparity_truth": lambda p, d, far: _inverse(*least_squares(p, 1 / d), floor=1 / float(d.max())),
    # Depth known up to a scale, or up to scale and shift, by weighted absolute errors (MoGe).
    "l1_scale": by_least_absolute_scale,
    "l1": lambda p, d, far: _line(*least_absolute(p, d, 1 / d)),
}
"""Aligned depth in metres from (prediction, true depth, the furthest depth there may be)."""

OF_DISPARITY = frozenset(name for name in ALIGNMENTS if "disparity" in name)
"""Alignments of disparity; the others are of depth."""


def _line(scale: float, shift: float = 0.0) -> Aligned:
    def aligned(values: Values) -> Values:
        with np.errstate(invalid="ignore", over="ignore"):  # 0 times infinity
            return scale * values + shift

    return aligned


def _inverse(scale: float, shift: float, *, floor: float) -> Aligned:
    line = _line(scale, shift)
    return lambda values: 1 / np.maximum(line(values), floor)


def _log(values: Values) -> Values:
    """Return the logarithm, NaN where there is none."""
    return np.log(np.where(values > 0, values, np.nan))


def _finite(*columns: Pixels) -> list[Float[np.ndarray, " m"]]:
    """Return the pixels at which all are finite."""
    finite = np.isfinite(columns).all(axis=0)
    if not finite.any():
        raise NothingToFit("no pixel has both a finite prediction and ground truth.")
    return [column[finite].astype(np.float64) for column in columns]


def as_ground_truth(
    prediction: Float[Tensor, "b 1 h w"], kind: DepthKind
) -> tuple[Float[Tensor, "b 1 h w"], Bool[Tensor, "b 1 h w"]]:
    """Return a prediction as the depth that losses compare with, which is positive, and where it is known.

    Of disparity the inverse, each image's disparity first brought to 0.1 to 1.1; affine depth is brought to 1 to 2
    (`disparity_as_depth`). Losses for them ignore scale and shift.
    """
    valid = prediction.isfinite()
    if kind == "metric":
        return prediction, valid & (prediction > 0)
    low = torch.where(valid, prediction, torch.inf).amin((1, 2, 3), keepdim=True)
    high = torch.where(valid, prediction, -torch.inf).amax((1, 2, 3), keepdim=True)
    span = (high - low).clamp_min(1e-12)
    share = torch.where(valid, (prediction - low) / span, 0)
    return (1 / (share + 0.1) if kind == "disparity" else 1 + share), valid


BLOCK = 8192  # OpenBLAS computes longer vectors in several threads


def dot_single_thread(a: Float64[np.ndarray, " n"], b: Float64[np.ndarray, " n"]) -> float:
    """Return sum(a * b).

    `a @ b` starts the threads of BLAS, which wait for one another where several images are scored at once: twice the
    CPU time and no faster (benchmarks/scoring.py).
    """
    whole = a.size // BLOCK * BLOCK
    rows = np.vecdot(a[:whole].reshape(-1, BLOCK), b[:whole].reshape(-1, BLOCK))
    return float(rows.sum() + np.vecdot(a[whole:], b[whole:]))
