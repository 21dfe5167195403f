"""How far single objects are, and how large, from depth. h x w pixels."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from densevit.ops.geometry import Matrix


class Measured(NamedTuple):
    """Of one object in metres; None where it is unknown."""

    depth: float | None = None  # median along the optical axis
    low: float | None = None  # ends of its interval, as calibrated
    high: float | None = None
    width: float | None = None  # of its box, at that depth
    height: float | None = None


def measure(
    mask: Bool[np.ndarray, "h w"],
    depth: Float[np.ndarray, "h w"],
    widths: Float[np.ndarray, "h w"] | None = None,
    matrix: Matrix | None = None,
) -> Measured:
    """Measure an object.

    Args:
        depth: in metres, not finite or 0 where unknown.
        widths: half of each pixel's interval, of the logarithm of the depth.
        matrix: intrinsics of the camera; an object without them has no size.
    """
    valid = mask & np.isfinite(depth) & (depth > 0)
    if not valid.any():
        return Measured()
    metres = float(np.median(depth[valid]))
    spread = None if widths is None else float(np.median(widths[valid]))
    low, high = (None, None) if spread is None else (metres * np.exp(-spread), metres * np.exp(spread))
    if matrix is None:
        return Measured(metres, low, high)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    height, width = (x[-1] - x[0] + 1 for x in (rows, columns))
    return Measured(metres, low, high, float(width * metres / matrix[0, 0]), float(height * metres / matrix[1, 1]))
