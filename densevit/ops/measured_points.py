"""Brings a predicted map to metres by sparse measurements: a robust global fit, then a smooth local correction.

h x w pixels, n measured points; metres.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import cv2
import numpy as np
from jaxtyping import Float, Float32, Float64

from densevit.errors import DataError
from densevit.model_card import Kind

Values = Float64[np.ndarray, " n"]
Line = tuple[float, float]
"""Scale and shift."""

FEWEST = {"metric": 1, "affine": 3, "disparity": 3}
"""Points that a fit needs, by kind of the map."""
FEWEST_TO_CORRECT = 8
"""Points that a local correction needs; of fewer, the error of the fit is that of points that it was made of."""

HUBER = 1.345  # of the residuals' standard deviation: 95% efficient for normal errors (Huber 1964)
OUTLIER = 4.0  # standard deviations, beyond which a point does not correct the map
ROUNDS, PAIRS = 30, 500
FARTHEST = 5.0  # times the farthest point: no disparity becomes a larger depth
SELECTED, USED = 250, 800  # points that choose the correction's reach, and that make it
COARSE = 96  # longest side of the grid on which the correction is computed
REACHES = (0.05, 0.1, 0.2, 0.4)  # of the correction, in diagonals of the image ...
STEPS = (0.1, 0.3, 1.0)  # ... and in log depth, so that it does not leak across depth edges
NOISES = (0.1, 0.5, 2.0)  # variance of the points over that of the correction


@dataclass(frozen=True)
class MeasuredPoints:
    """Measured points."""

    u: Values  # pixels; the centre of the first one is (0, 0)
    v: Values  # pixels; the centre of the first one is (0, 0)
    depth: Values  # metres along the optical axis

    def __len__(self) -> int:
        return len(self.depth)


@dataclass(frozen=True)
class FittedMap:
    """A map in metres."""

    depth: Float32[np.ndarray, "h w"]
    points: int  # that were used
    residual: float  # median relative error at the points, after the global fit
    corrected: float  # the same with the local correction, of each point by the others (leave one out)
    is_input: bool = False  # the points were an input of the model, and no fit was made


def as_points(points: object, size: tuple[int, int]) -> MeasuredPoints:
    """Measured points given in any way. Raises DataError: another shape, numbers that are none, no points, or some
    outside of the image. `points`: `MeasuredPoints`; n 3 of u, v and metres; or h w of metres, 0 where none; `size`:
    (h, w) of the image."""
    if not isinstance(points, MeasuredPoints):
        values = np.asarray(points, dtype=np.float64)
        if values.shape == size:
            v, u = np.nonzero(values)
            points = MeasuredPoints(u.astype(np.float64), v.astype(np.float64), values[v, u])
        elif values.ndim == 2 and values.shape[1] == 3:
            points = MeasuredPoints(*values.T)
        else:
            raise DataError(
                f"points: an array of {values.shape}; points are n 3 (u, v, metres) or a map of {size[0]}x{size[1]}."
            )
    numbers = np.stack([points.u, points.v, points.depth], 1)
    h, w = size
    good = np.isfinite(numbers).all(1) & (numbers[:, 2] > 0)
    good &= (numbers[:, 0] >= -0.5) & (numbers[:, 0] < w - 0.5) & (numbers[:, 1] >= -0.5) & (numbers[:, 1] < h - 0.5)
    if not len(numbers):
        raise DataError("points: there are no points.")
    if not good.all():
        u, v, depth = numbers[~good][0]
        raise DataError(
            f"points: u {u:g}, v {v:g}, depth {depth:g}; a point lies in the image of {h}x{w} and has a depth over 0."
        )
    return points


def points_as_map(points: MeasuredPoints, size: tuple[int, int]) -> Float32[np.ndarray, "h w"]:
    """Metres at the pixels of the points, 0 elsewhere; of those in one pixel the nearest."""
    rows, columns = (np.rint(place).astype(int) for place in (points.v, points.u))
    order = np.argsort(-points.depth, kind="stable")  # the last one written stays
    measured = np.zeros(size, np.float32)
    measured[rows[order], columns[order]] = points.depth[order]
    return measured


def fit_to_points(values: Float[np.ndarray, "h w"], points: MeasuredPoints, kind: Kind) -> FittedMap:
    """Metres from a map of any kind.

    Metric maps are scaled; affine ones get scale and shift; disparities become depth by scale and shift of their
    inverse, both robust against outliers and of relative errors. What is left is corrected by Gaussian process
    regression of the logarithm over place and depth, whose reach is chosen by leave-one-out errors; where it does not
    make them smaller, there is no correction. Raises DataError: too few points have a value, or the map runs against
    them.
    """
    sampled = sample(values, points)
    usable = np.isfinite(sampled) & ((sampled > 0) | (kind != "metric"))
    if usable.sum() < FEWEST[kind]:
        raise DataError(
            f"points: {int(usable.sum())} points have a value in the map; a {kind} map needs {FEWEST[kind]}."
        )
    used = MeasuredPoints(points.u[usable], points.v[usable], points.depth[usable])
    to_metres = fit_globally(sampled[usable], used.depth, kind)
    depth = to_metres(values.astype(np.float64))
    left = np.log(used.depth / to_metres(sampled[usable]))
    factor, errors = local_correction(depth, used, left)
    residual = float(np.median(np.abs(np.expm1(-left))))
    if factor is None:
        return FittedMap(depth.astype(np.float32), len(used), residual, residual)
    return FittedMap(
        (depth * factor).astype(np.float32), len(used), residual, float(np.median(np.abs(np.expm1(errors))))
    )


def given_to_model(depth: Float32[np.ndarray, "h w"], points: MeasuredPoints) -> FittedMap:
    """A map that a model predicted with the points as an input."""
    residual = float(np.nanmedian(np.abs(sample(depth, points) / points.depth - 1)))
    return FittedMap(depth, len(points), residual, residual, is_input=True)


def sample(values: Float[np.ndarray, "h w"], points: MeasuredPoints) -> Values:
    """The nearest pixel's value: between pixels of both sides of an edge there is no depth."""
    rows, columns = (np.rint(place).astype(int) for place in (points.v, points.u))
    found: Values = values[rows, columns].astype(np.float64)
    return found


def fit_globally(sampled: Values, depth: Values, kind: Kind) -> Callable[[np.ndarray], np.ndarray]:
    """Raises DataError: a relative map that decreases where depth increases, or does not change."""
    if kind == "metric":
        scale = float(np.exp(np.median(np.log(depth / sampled))))
        return lambda x: scale * x
    target = 1 / depth if kind == "disparity" else depth
    scale, shift = robust_line(sampled, target, 1 / target)
    if scale <= 0:
        raise DataError(
            f"points: the map runs against the {len(depth)} points (scale {scale:.3g}); are they of this image, "
            "and in its pixels?"
        )
    if kind == "disparity":
        least = 1 / (FARTHEST * depth.max())
        return lambda x: 1 / np.maximum(scale * x + shift, least)
    nearest = depth.min() / FARTHEST
    return lambda x: np.maximum(scale * x + shift, nearest)


def robust_line(x: Values, y: Values, weights: Values) -> Line:
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


def least_median_line(x: Values, y: Values, weights: Values) -> Line:
    """The line through two of the points with the least median of weighted residuals, among `PAIRS` random pairs."""
    draw = np.random.default_rng(0)
    one, two = draw.integers(0, len(x), PAIRS), draw.integers(0, len(x), PAIRS)
    apart = np.abs(x[one] - x[two]) > 1e-9 * np.abs(x).max()
    if not apart.any():
        return 0.0, float(np.median(y))
    one, two = one[apart], two[apart]
    scale = (y[one] - y[two]) / (x[one] - x[two])
    shift = y[one] - scale * x[one]
    subset = subsample(np.arange(len(x)), USED)
    rest = np.abs((scale[:, None] * x[subset] + shift[:, None] - y[subset]) * weights[subset])
    best = int(np.argmin(np.median(rest, 1)))
    return float(scale[best]), float(shift[best])


def local_correction(
    depth: Float64[np.ndarray, "h w"], points: MeasuredPoints, left: Values
) -> tuple[Float64[np.ndarray, "h w"] | None, Float64[np.ndarray, " used"]]:
    """The factor of each pixel, and the leave-one-out error in log depth of each point; None where it does not help."""
    spread = 1.4826 * np.median(np.abs(left - np.median(left))) + 1e-6
    kept = subsample(np.flatnonzero(np.abs(left - np.median(left)) <= OUTLIER * spread), USED)
    if len(kept) < FEWEST_TO_CORRECT:
        return None, left
    h, w = depth.shape
    diagonal = float(np.hypot(h, w))
    places = np.stack([points.u[kept] / diagonal, points.v[kept] / diagonal, np.log(sample(depth, points)[kept])], 1)
    errors = left[kept]
    chosen = subsample(np.arange(len(kept)), SELECTED)
    tried = {reach: np.abs(leave_one_out(places[chosen], errors[chosen], reach)[0]).mean() for reach in reaches()}
    best = min(tried, key=lambda reach: tried[reach])
    if tried[best] >= np.abs(errors[chosen]).mean():
        return None, left
    rest, alpha = leave_one_out(places, errors, best)
    return np.exp(predicted(depth, places, alpha, best, diagonal)), rest


Reach = tuple[float, float, float]
"""Of the correction: in diagonals of the image, in log depth; and the share of noise."""


def reaches() -> Iterator[Reach]:
    return product(REACHES, STEPS, NOISES)


def kernel(a: Float64[np.ndarray, "a 3"], b: Float64[np.ndarray, "b 3"], reach: Reach) -> Float64[np.ndarray, "a b"]:
    scaled = np.array([1 / reach[0], 1 / reach[0], 1 / reach[1]])
    a, b = a * scaled, b * scaled
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0)))


def leave_one_out(places: Float64[np.ndarray, "n 3"], errors: Values, reach: Reach) -> tuple[Values, Values]:
    """Each point's error predicted by the others, minus its own; and the weights of the points (Rasmussen and Williams
    2006, 5.4.2)."""
    inverse = np.linalg.inv(kernel(places, places, reach) + reach[2] * np.eye(len(places)))
    alpha = inverse @ errors
    return -alpha / np.diag(inverse), alpha


def predicted(
    depth: Float64[np.ndarray, "h w"], places: Float64[np.ndarray, "n 3"], alpha: Values, reach: Reach, diagonal: float
) -> Float64[np.ndarray, "h w"]:
    """The correction in log depth, computed on a coarse grid."""
    h, w = depth.shape
    factor = min(1.0, COARSE / max(h, w))
    size = max(1, round(w * factor)), max(1, round(h * factor))
    filled = np.where(np.isfinite(depth) & (depth > 0), depth, np.nanmedian(depth))
    small = np.log(cv2.resize(filled, size, interpolation=cv2.INTER_NEAREST))
    u = ((np.arange(size[0]) + 0.5) * (w / size[0]) - 0.5) / diagonal
    v = ((np.arange(size[1]) + 0.5) * (h / size[1]) - 0.5) / diagonal
    grid = np.stack([*(axis.ravel() for axis in np.meshgrid(u, v)), small.ravel()], 1)
    rows = [kernel(part, places, reach) @ alpha for part in np.array_split(grid, max(1, len(grid) // 4096))]
    coarse = np.concatenate(rows).reshape(size[1], size[0])
    return np.asarray(cv2.resize(coarse, (w, h), interpolation=cv2.INTER_LINEAR))


def subsample(indices: np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, evenly spread."""
    return indices if len(indices) <= most else indices[np.linspace(0, len(indices) - 1, most).astype(int)]
