"""Brings a predicted map to metres by measured points: a robust global fit, and interpolation of what is left.

h x w pixels, n measured points, m queries, c candidates. Places are (u, v); values are logarithms of metres.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from jaxtyping import Float, Float32, Float64, Int64
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from densevit.errors import DataError
from densevit.model_card import Kind
from densevit.ops.align import robust_line, weighted_median
from densevit.ops.points import MeasuredPoints, Values, one_per_pixel, sample
from densevit.structures import Size

Places = Float64[np.ndarray, "n 2"]
Columns = Float64[np.ndarray, "n k"]
Queries = Float64[np.ndarray, "m 2"]
Held = Float64[np.ndarray, "held c"]
Weights = Float64[np.ndarray, " c"]

FEWEST = {"metric": 1, "affine": 3, "disparity": 3}
"""Points that a fit needs, by kind of the map."""
FEWEST_TO_CORRECT = 5
"""Points that a correction needs; of fewer, none can be left out to see what it is worth."""

FARTHEST = 5.0  # times the farthest point: no disparity becomes a larger depth
LEAST = 1e-3  # metres
KRIGED = 1000  # points up to which kriging takes part, whose time grows with their cube
COARSE = 8  # pixels between those at which kriging is computed
SHARPNESS = 6  # a candidate of twice the error at points left out weighs 2 ** -6 as much
NEIGHBOURS = 16  # with which a point with noise shares its value
TRENDS = 2  # candidates without interpolation: the fitted map, and that with another contrast
LINEAR = 3  # the candidate that interpolates log depth linearly


@dataclass(frozen=True)
class PointFit:
    """How a map was brought to metres."""

    points: int
    error: float | None = None
    """Mean relative error at points that neither made the map nor chose how; None of too few."""
    interpolation: float | None = None
    """The same of linear interpolation between the points, without the map."""
    is_input: bool = False
    """The points were an input of the model; `error` is that at them."""


def fit_to_points(
    values: Float[np.ndarray, "h w"], points: MeasuredPoints, kind: Kind
) -> tuple[Float32[np.ndarray, "h w"], PointFit]:
    """Return metres from a map of any kind; raise DataError if too few points have a value, or it runs against them.

    First comes a global fit, robust against outliers and of relative errors: metric maps are scaled, affine ones get
    scale and shift, disparities become depth by scale and shift of their inverse. Then log depth itself and the log
    error of the fitted map are interpolated between the points in three ways each, and averaged, weighted by how well
    each predicts points that it did not see. The average takes the place of the fitted map as far as its gain at such
    points is certain: from half a standard error on, and entirely from one on. Then points without noise are met.
    """
    points, size = one_per_pixel(points), (values.shape[0], values.shape[1])
    sampled = sample(values, points)
    usable = np.isfinite(sampled) & ((sampled > 0) | (kind != "metric"))
    if usable.sum() < FEWEST[kind]:
        raise DataError(
            f"points: {int(usable.sum())} points have a value in the map; a {kind} map needs {FEWEST[kind]}."
        )
    sampled, points = sampled[usable], points.take(usable)
    to_metres, scale = fit_globally(sampled, points, kind)
    if scale <= 0:
        raise DataError(
            f"points: the map runs against the {len(points)} points (scale {scale:.3g}); are they of this image, "
            "and in its pixels?"
        )
    depth = to_metres(values.astype(np.float64))
    if len(points) < FEWEST_TO_CORRECT:
        return depth.astype(np.float32), PointFit(len(points))
    held = leave_out(sampled, points, kind, size)
    weights = choose_weights(held)
    if weights[0] < 1:
        depth = np.exp(combine(np.log(np.maximum(depth, LEAST)), points, weights))
    return depth.astype(np.float32), PointFit(len(points), nested_error(held), mean_error(held[:, LINEAR]))


def fit_globally(
    sampled: Values, points: MeasuredPoints, kind: Kind
) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """Return what makes metres of a map, and its scale, which is not over 0 where the map runs against the points."""
    depth, certainty = points.depth, 1 / np.maximum(points.log_noise, 1e-3)
    if kind == "metric":
        ratios = depth / sampled
        scale = float(np.median(ratios)) if points.noise is None else weighted_median(ratios, certainty)
        return lambda x: scale * x, scale
    target = 1 / depth if kind == "disparity" else depth
    scale, shift = robust_line(sampled, target, certainty / target)
    if kind == "disparity":
        least = 1 / (FARTHEST * depth.max())
        return lambda x: 1 / np.maximum(scale * x + shift, least), scale
    nearest = depth.min() / FARTHEST
    return lambda x: np.maximum(scale * x + shift, nearest), scale


def leave_out(sampled: Values, points: MeasuredPoints, kind: Kind, size: Size) -> Held:
    """Return the errors in log depth of every candidate at points that did not make it, weighted by their noise."""
    errors, noise = [], points.log_noise
    for part in folds(len(points)):
        rest = np.setdiff1d(np.arange(len(points)), part)
        some = points.take(rest)
        to_metres, _ = fit_globally(sampled[rest], some, kind)
        base = np.log(np.maximum(to_metres(sampled), LEAST))
        steep, level = contrast(base[rest], some)
        trend = steep * base + level
        known = np.stack([np.log(some.depth), np.log(some.depth) - trend[rest]], 1)
        of_depth, of_error = Interpolation(some.places, smoothed(some, known), size)(points.places[part])
        own = trend[part, None]
        found = np.concatenate([base[part, None], own, of_depth, of_error + own], 1)
        certainty = 1 / (1 + (noise[part] / max(float(np.median(noise)), 1e-2)))
        errors.append((found - np.log(points.depth[part, None])) * certainty[:, None])
    return np.concatenate(errors)


def folds(count: int) -> list[Int64[np.ndarray, " _"]]:
    """Return the points that are left out together; of very many, some once."""
    order = np.random.default_rng(0).permutation(count)
    if count > KRIGED:
        return [order[: min(KRIGED, count // 10)]]
    return np.array_split(order, min(count, 10 if count <= 200 else 5))


def contrast(base: Values, points: MeasuredPoints) -> tuple[float, float]:
    """Return the line of log depth over that of a map: maps are often too flat, or too deep."""
    steep, _ = robust_line(base, np.log(points.depth), 1 / np.maximum(points.log_noise, 1e-3))
    steep = float(np.clip(steep, 0, 3))
    return steep, float(np.median(np.log(points.depth) - steep * base))


def smoothed(points: MeasuredPoints, values: Columns) -> Columns:
    """Return the values, each averaged with those around as far as its noise exceeds how much they vary."""
    noise = points.log_noise**2
    if not noise.any() or len(points) < 2:
        return values
    distances, near = cKDTree(points.places).query(points.places, k=min(NEIGHBOURS, len(points)))
    of_pairs = (noise[:, None] + noise[near])[..., None]
    trust = 1 / (of_pairs + 1e-4) ** 2
    squares = ((values[:, None] - values[near]) ** 2 - of_pairs) * trust
    # How the squared difference of two points grows with the pixels between them.
    variation = (squares[:, 1:].sum((0, 1)) / (trust * distances[..., None])[:, 1:].sum((0, 1))).clip(min=0)
    weights = 1 / (noise[near][..., None] + variation * distances[..., None] + 1e-12)
    return np.asarray((weights * values[near]).sum(1) / weights.sum(1))


class Interpolation:
    """Values between points, in three ways: the nearest point's, linear on triangles, and by kriging with the
    generalised covariance r ** 1.5 and a linear drift (of at most `KRIGED` points)."""

    def __init__(self, places: Places, values: Columns, size: Size) -> None:
        self.places, self.values, self.size, self.diagonal = places, values, size, float(np.hypot(*size))
        self.tree = cKDTree(places)
        self.kriged = len(places) <= KRIGED
        if self.kriged:
            n, drift = len(places), self.drift(places)
            system = np.zeros((n + drift.shape[1],) * 2)
            system[:n, :n] = self.covariance(places) + 1e-9 * np.eye(n)
            system[:n, n:], system[n:, :n] = drift, drift.T
            self.solved = np.linalg.solve(system, np.concatenate([values, np.zeros((drift.shape[1], values.shape[1]))]))

    @cached_property
    def linear(self) -> Callable[[Queries], Float64[np.ndarray, "m k"]]:
        """On the triangles of the points and the corners of the image, of which kriging or the nearest point tells."""
        h, w = self.size
        corners = np.array([[-1.0, -1.0], [w, -1.0], [-1.0, h], [w, h]])
        around = self.kriging(corners) if self.kriged else self.nearest(corners)
        places, values = np.concatenate([self.places, corners]), np.concatenate([self.values, around])
        return LinearNDInterpolator(places, values)  # type: ignore[no-any-return]

    def covariance(self, places: Queries) -> Float64[np.ndarray, "m n"]:
        return np.asarray((cdist(places, self.places) / self.diagonal) ** 1.5)

    def drift(self, places: Queries) -> Float64[np.ndarray, "m _"]:
        columns = np.concatenate([np.ones((len(places), 1)), places / self.diagonal], 1)
        return columns if len(self.places) > FEWEST_TO_CORRECT else columns[:, :1]

    def nearest(self, places: Queries) -> Float64[np.ndarray, "m k"]:
        return np.asarray(self.values[self.tree.query(places)[1]])

    def kriging(self, places: Queries) -> Float64[np.ndarray, "m k"]:
        columns = np.concatenate([self.covariance(places), self.drift(places)], 1)
        return np.asarray(columns @ self.solved)

    def __call__(self, places: Queries) -> Float64[np.ndarray, "k m ways"]:
        ways = [self.nearest(places), self.linear(places), *([self.kriging(places)] if self.kriged else [])]
        return np.stack(ways, -1).transpose(1, 0, 2)


def choose_weights(held: Held) -> Weights:
    """Return the share of each candidate; see `fit_to_points`."""
    errors = np.abs(np.expm1(held)).clip(max=3)
    trend = int(certainty(errors[:, 0] - errors[:, 1]) >= 1)
    shares = np.maximum(errors[:, TRENDS:].mean(0), 1e-9) ** -SHARPNESS
    shares /= shares.sum()
    blend = np.abs(np.expm1(held[:, TRENDS:] @ shares)).clip(max=3)
    applied = float(np.clip(2 * certainty(errors[:, trend] - blend) - 1, 0, 1))
    weights = np.concatenate([np.zeros(TRENDS), applied * shares])
    weights[trend] = 1 - applied
    return weights


def certainty(gains: Values) -> float:
    """Return the mean in standard errors."""
    return float(gains.mean() / (gains.std(ddof=1) / np.sqrt(len(gains)) + 1e-12))


def mean_error(errors: Values) -> float:
    return float(np.abs(np.expm1(errors)).mean())


def nested_error(held: Held) -> float:
    """Return the mean relative error of the choice at points that it was not chosen by."""
    parts = np.array_split(np.arange(len(held)), FEWEST_TO_CORRECT)
    return mean_error(np.concatenate([held[part] @ choose_weights(np.delete(held, part, 0)) for part in parts]))


def combine(base: Float64[np.ndarray, "h w"], points: MeasuredPoints, weights: Weights) -> Float64[np.ndarray, "h w"]:
    """Return log depth as the weights have it of the candidates, from that of the fitted map."""
    size, log_depth = (base.shape[0], base.shape[1]), np.log(points.depth)
    steep, level = contrast(sample(base, points), points)
    trend = steep * base + level
    of_depth, of_error = weights[TRENDS:].reshape(2, -1)
    values = smoothed(points, np.stack([log_depth, log_depth - sample(trend, points)], 1))
    by_way = list((values @ np.stack([of_depth, of_error])).T[..., None])
    pixels = np.stack(np.meshgrid(np.arange(size[1]), np.arange(size[0])), -1).reshape(-1, 2).astype(np.float64)
    found = Interpolation(points.places, by_way[0], size).nearest(pixels).reshape(size)
    for way in by_way[2:]:
        found += kriged_map(Interpolation(points.places, way, size))
    # What the triangles have to add, so that the points are met.
    rest = Interpolation(points.places, sum(by_way) - sample(found, points)[:, None], size)
    found += rest.linear(pixels).reshape(size)
    return np.asarray(weights[0] * base + (weights[1] + of_error.sum()) * trend + found)


def kriged_map(values: Interpolation) -> Float64[np.ndarray, "h w"]:
    """Return the values everywhere, by kriging at every few pixels."""
    h, w = values.size
    rows, columns = (max(1, side // COARSE) for side in (h, w))
    v, u = (np.arange(rows) + 0.5) * (h / rows) - 0.5, (np.arange(columns) + 0.5) * (w / columns) - 0.5
    coarse = values.kriging(np.stack(np.meshgrid(u, v), -1).reshape(-1, 2)).reshape(rows, columns)
    return np.asarray(cv2.resize(coarse, (w, h), interpolation=cv2.INTER_CUBIC))
