"""Scale and shift that bring a prediction without unit onto the truth, fitted over n measured pixels of one image.

All in float64. A fit needs finite numbers; what is not finite is left out of it.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from densevit.errors import DataError

Pixels = Float[np.ndarray, " n"]


def least_squares(prediction: Pixels, target: Pixels) -> tuple[float, float]:
    """Scale and shift that minimise the squared error to the target.

    A constant prediction says nothing of the scale: 0, with the target's mean for a shift.

    Raises:
        DataError: no pixel to fit.
    """
    x, y = _finite(prediction, target)
    x_mean, y_mean = x.mean(), y.mean()
    dx = x - x_mean  # centred: the normal equations of raw sums lose the variance of a nearly constant prediction
    variance = dx @ dx / x.size
    rounding = (np.finfo(np.float64).eps * abs(x_mean)) ** 2 * x.size
    if variance <= rounding:
        return 0.0, float(y_mean)
    scale = dx @ (y - y_mean) / x.size / variance
    return float(scale), float(y_mean - scale * x_mean)


def median_scale(prediction: Pixels, target: Pixels) -> float:
    """median(target) / median(prediction), as the self-supervised line scales (Zhou et al. 2017).

    Raises:
        DataError: no pixel to fit, or a median that is not positive.
    """
    x, y = _finite(prediction, target)
    middle = float(np.median(x))
    if middle <= 0:
        raise DataError(f"the prediction's median is {middle:g}; median scaling needs depths over 0.")
    return float(np.median(y)) / middle


def by_median(prediction: Pixels, depth: Pixels, furthest: float) -> Pixels:
    """Depth from depth known up to a scale."""
    return prediction * median_scale(prediction, depth)


def by_least_squares(prediction: Pixels, depth: Pixels, furthest: float) -> Pixels:
    """Depth from depth known up to scale and shift, as Marigold is scored."""
    scale, shift = least_squares(prediction, depth)
    return scale * prediction + shift


def by_disparity(prediction: Pixels, depth: Pixels, furthest: float) -> Pixels:
    """Depth from disparity known up to scale and shift, as MiDaS, DPT and Depth Anything are scored.

    Fitted to 1 / depth, then floored at 1 / `furthest` before it is inverted.
    """
    scale, shift = least_squares(prediction, 1 / depth)
    return 1 / np.maximum(scale * prediction + shift, 1 / furthest)


ALIGNMENTS: dict[str, Callable[[Pixels, Pixels, float], Pixels]] = {
    "median": by_median,
    "lstsq": by_least_squares,
    "lstsq_disparity": by_disparity,
}
"""Aligned depth in metres from (prediction, true depth, the furthest depth there may be)."""


def _finite(prediction: Pixels, target: Pixels) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    both = np.isfinite(prediction) & np.isfinite(target)
    if not both.any():
        raise DataError("no pixel has both a finite prediction and a truth to align it to.")
    return prediction[both].astype(np.float64), target[both].astype(np.float64)
