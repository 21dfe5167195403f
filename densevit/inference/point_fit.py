"""Brings a predicted map to metres by measured points: a robust global fit, and interpolation of what is left.

h x w pixels, n measured points, m queries, c candidates. Places are (u, v); values are logarithms of metres.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from densevit.errors import DataError
from densevit.model_card import Kind
from densevit.ops.align import robust_line, weighted_median
from densevit.ops.points import MeasuredPoints, Values, one_per_pixel, sample
from densevit.structures import Size

Places = Float64[np.ndarray, "n 2"]
Columns = Float64[np.ndarray, "n k"]
Queries = Float64[np.ndarray, "m 2"]
Held = Float64[np.ndarray, "held c"]
Map = Float64[np.ndarray, "..."]
Weights = Float64[np.ndarray, " c"]

FEWEST = {"metric": 1, "affine": 3, "disparity": 3}
"""Points that a fit needs, by kind of the map."""
FEWEST_TO_CORRECT = 5
"""Points that a correction needs; of fewer, none can be left out to see what it is worth."""

FARTHEST = 5.0  # times the farthest point: no disparity becomes a larger depth
LEAST = 1e-3  # metres
KRIGED = 1000  # points up to which kriging takes part, whose time grows with their cube
LINE = 0.02  # of the diagonal: points that deviate less from a line tell no drift across it
COARSE = 8  # pixels between those at which kriging is computed
SHARPNESS = 8  # of many points: a candidate of twice the error at points left out weighs 2 ** -8 as much
DOUBT = 10  # points of which the errors left out are believed by half
PRIOR = (1, 1, 4, 4)  # what the nearest point, triangles and each kriging weigh before errors are known
APPLIED = (0.25, 0.8)  # odds against the fitted map at which the blend begins to replace it, and has replaced it
NOISE = 0.15  # an error of the fitted map that may as well be noise of the points; smaller ones are likelier noise
SAME_CONTRAST = 0.1  # as the squares of log depth, the weight of the map's own contrast
NEIGHBOURS = 16  # with which a point with noise shares its value, or that tell a point left out
KRIGINGS = ((lambda r: r**2 * np.log(np.maximum(r, 1e-9)), True), (lambda r: -r, False))
"""Generalised covariances over the diagonal of the image, and whether with a linear drift; the first: a thin plate."""
LINEAR = 2  # the candidate that interpolates log depth linearly


@dataclass(frozen=True)
class PointFit:
    """How a map was brought to metres."""

    points: int
    error: float | None = None
    """Mean relative error at points that neither made the map nor selected its form; None if there are too few."""
    interpolation: float | None = None
    """The same of linear interpolation between the points, without the map."""
    is_input: bool = False
    """The points were an input of the model; `error` is that at them."""


def fit_to_points(
    values: Float[np.ndarray, "h w"], points: MeasuredPoints, kind: Kind | None
) -> tuple[Float32[np.ndarray, "h w"], PointFit]:
    """Return metres from a map of any kind; raise DataError if too few points have a value, or it runs against them.

    First comes a global fit, robust against outliers and of relative errors: metric maps are scaled, affine ones get
    scale and shift, disparities become depth by scale and shift of their inverse. Then log depth itself, and the log
    error of the fitted map with its own and with the points' contrast, are interpolated between the points in four ways
    each, and averaged, weighted by how well each predicts points that it did not see. The average replaces the fitted
    map as far as it is better at such points. Both trust the errors there the less, the fewer they are. A map that is
    replaced entirely meets all points without noise, any map those whose noise is said to be 0. A map of no kind is in
    metres, of a network that the points were an input of, and gets no global fit.
    """
    points, size = one_per_pixel(points), (values.shape[0], values.shape[1])
    sampled = sample(values, points)
    usable = np.isfinite(sampled) & ((sampled > 0) | (kind in ("affine", "disparity")))
    needed = FEWEST[kind or "metric"]
    if usable.sum() < needed:
        raise DataError(f"points: {int(usable.sum())} points have a value in the map; a {kind} map needs {needed}.")
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
    if weights[0] < 1 or (points.noise is not None and not points.noise.all()):
        depth = np.exp(combine(np.log(np.maximum(depth, LEAST)), points, weights))
    return depth.astype(np.float32), PointFit(len(points), nested_error(held), mean_error(held[:, LINEAR]))


def fit_globally(
    sampled: Values, points: MeasuredPoints, kind: Kind | None
) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """Return what makes metres of a map, and its scale, which is not over 0 where the map runs against the points."""
    depth, certainty = points.depth, 1 / np.maximum(points.log_noise, 1e-3)
    if kind is None:
        return lambda x: x, 1.0
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


def leave_out(sampled: Values, points: MeasuredPoints, kind: Kind | None, size: Size) -> Held:
    """Return the errors in log depth of every candidate at points that did not make it, weighted by their noise."""
    errors, noise = [], points.log_noise
    for fold in folds(points):
        rest = np.setdiff1d(np.arange(len(points)), fold)
        if len(points) > KRIGED:  # of which only those around matter, and triangles take their time
            around = nearest_points(points.places[rest], points.places[fold], NEIGHBOURS)[1]
            rest = rest[np.unique(around)]
        some = points.take(rest)
        to_metres, _ = fit_globally(sampled[rest], some, kind)
        base = np.log(np.maximum(to_metres(sampled), LEAST))
        trends = np.stack([np.zeros_like(base), base, contrasted(base, base[rest], some)], 1)
        values = smoothed(some, np.log(some.depth)[:, None] - trends[rest])
        ways = Interpolation(some.places, values, size)(points.places[fold]) + trends[fold].T[..., None]
        candidates = np.concatenate([base[fold, None], *ways], 1)
        certainty = 1 / (1 + (noise[fold] / max(float(np.median(noise)), 1e-2)))
        errors.append((candidates - np.log(points.depth[fold, None])) * certainty[:, None])
    return np.concatenate(errors)


def folds(points: MeasuredPoints) -> list[Int64[np.ndarray, " _"]]:
    """Return the points that are left out together, in any order of the points the same; of very many, some once."""
    count = len(points)
    order = np.lexsort((points.v, points.depth))[np.random.default_rng(0).permutation(count)]
    if count > KRIGED:
        return [order[: min(KRIGED, count // 10)]]
    return np.array_split(order, min(count, max(5, KRIGED // count)))


def contrasted(base: Map, sampled: Values, points: MeasuredPoints) -> Map:
    """Return log depth of a map with the contrast of the points: maps are often too flat, or too deep. Of few points,
    or of points alike, mostly its own."""
    weights, target = 1 / (1 + np.square(points.log_noise / 1e-2)), np.log(points.depth)
    x, y = (values - np.average(values, weights=weights) for values in (sampled, target))
    steep = (weights @ (x * y) + SAME_CONTRAST) / (weights @ (x * x) + SAME_CONTRAST)
    steep = float(np.clip(steep, 0, 3))
    return steep * base + float(np.median(target - steep * sampled))


def nearest_points(places: Places, at: Queries, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances and rows of the nearest of some places to others; without the last axis for one."""
    from scipy.spatial import cKDTree  # scipy takes half a second, and few commands are given points

    distances, rows = cKDTree(places).query(at, k=count)
    return distances, rows


def smoothed(points: MeasuredPoints, values: Columns) -> Columns:
    """Return the values, each averaged with those around as far as its noise exceeds how much they vary."""
    noise = points.log_noise**2
    if not noise.any() or len(points) < 2:
        return values
    distances, near = nearest_points(points.places, points.places, min(NEIGHBOURS, len(points)))
    of_pairs = (noise[:, None] + noise[near])[..., None]
    trust = 1 / (of_pairs + 1e-4) ** 2
    squares = ((values[:, None] - values[near]) ** 2 - of_pairs) * trust
    # How the squared difference of two points grows with the pixels between them.
    variation = (squares[:, 1:].sum((0, 1)) / (trust * distances[..., None])[:, 1:].sum((0, 1))).clip(min=0)
    weights = 1 / (noise[near][..., None] + variation * distances[..., None] + 1e-12)
    return np.asarray((weights * values[near]).sum(1) / weights.sum(1))


class Interpolation:
    """Values between points: the nearest point's, linear on triangles, and by `KRIGINGS` (of at most `KRIGED`)."""

    def __init__(self, places: Places, values: Columns, size: Size) -> None:
        self.places, self.values, self.size = places, values, size
        self.krigings = [Kriging(places, values, size, *each) for each in KRIGINGS] if len(places) <= KRIGED else []

    @cached_property
    def linear(self) -> Callable[[Queries], Float64[np.ndarray, "m k"]]:
        """Interpolate on the triangles of the points and the corners of the image, which get the value of kriging or
        of the nearest point."""
        from scipy.interpolate import LinearNDInterpolator

        h, w = self.size
        corners = np.array([[-1.0, -1.0], [w, -1.0], [-1.0, h], [w, h]])
        around = self.krigings[0](corners) if self.krigings else self.nearest(corners)
        places, values = np.concatenate([self.places, corners]), np.concatenate([self.values, around])
        return LinearNDInterpolator(places, values)  # type: ignore[no-any-return]

    def nearest(self, places: Queries) -> Float64[np.ndarray, "m k"]:
        return np.asarray(self.values[nearest_points(self.places, places, 1)[1]])

    def __call__(self, places: Queries) -> Float64[np.ndarray, "k m ways"]:
        ways = [self.nearest(places), self.linear(places), *(each(places) for each in self.krigings)]
        return np.stack(ways, -1).transpose(1, 0, 2)


def spread_axes(places: Places, least: float) -> Float64[np.ndarray, "2 _"]:
    """Return the directions in which the points' standard deviation exceeds `least` pixels: both, or, of points on a
    line, as a laser scanner of one plane measures them, that of the line."""
    _, spread, axes = np.linalg.svd(places - places.mean(0), full_matrices=False)
    return np.eye(2) if spread[1] > least * len(places) ** 0.5 else axes[:1].T


class Kriging:
    """Kriging of values, with a constant or linear drift (constant of few points; of points on a line, along it)."""

    def __init__(
        self, places: Places, values: Columns, size: Size, covariance: Callable[[Map], Map], linear: bool
    ) -> None:
        self.places, self.size, self.covariance, self.diagonal = places, size, covariance, float(np.hypot(*size))
        drifts = linear and len(places) > FEWEST_TO_CORRECT
        self.axes = spread_axes(places, LINE * self.diagonal) if drifts else np.zeros((2, 0))
        n, columns = len(places), self.columns(places)
        terms = columns.shape[1] - n
        system = np.zeros((n + terms,) * 2)
        system[:n] = columns + 1e-9 * np.eye(n, n + terms)
        system[n:, :n] = columns[:, n:].T
        self.solved = np.linalg.solve(system, np.concatenate([values, np.zeros((terms, values.shape[1]))]))

    def columns(self, places: Queries) -> Float64[np.ndarray, "m _"]:
        from scipy.spatial.distance import cdist

        drift = np.concatenate([np.ones((len(places), 1)), places @ self.axes / self.diagonal], 1)
        return np.concatenate([self.covariance(cdist(places, self.places) / self.diagonal), drift], 1)

    def __call__(self, places: Queries) -> Float64[np.ndarray, "m k"]:
        return np.asarray(self.columns(places) @ self.solved)

    def as_map(self) -> Float64[np.ndarray, "h w"]:
        """Return the values everywhere, by kriging at every few pixels."""
        h, w = self.size
        rows, columns = (max(1, side // COARSE) for side in (h, w))
        v, u = (np.arange(rows) + 0.5) * (h / rows) - 0.5, (np.arange(columns) + 0.5) * (w / columns) - 0.5
        coarse = self(np.stack(np.meshgrid(u, v), -1).reshape(-1, 2)).reshape(rows, columns)
        return np.asarray(cv2.resize(coarse, (w, h), interpolation=cv2.INTER_CUBIC))


def choose_weights(held: Held) -> Weights:
    """Return the share of each candidate, first the fitted map; see `fit_to_points`."""
    trust = len(held) / (len(held) + DOUBT)
    power, errors = SHARPNESS * trust, np.abs(np.expm1(held)).clip(1e-9, 3)
    prior = np.array(PRIOR[: (held.shape[1] - 1) // 3] * 3, np.float64)  # the three are depth and both errors of it
    shares = prior ** (1 - trust) * errors[:, 1:].mean(0) ** -power
    shares /= shares.sum()
    blend = np.abs(np.expm1(held[:, 1:] @ shares)).clip(1e-9, 3).mean()
    fitted = errors[:, 0].mean()
    against = 1 / (1 + (blend / fitted) ** power * (NOISE / fitted) ** 4)
    applied = float(np.clip((against - APPLIED[0]) / (APPLIED[1] - APPLIED[0]), 0, 1))
    return np.concatenate([[1 - applied], applied * shares])


def mean_error(errors: Values) -> float:
    return float(np.abs(np.expm1(errors)).mean())


def nested_error(held: Held) -> float:
    """Return the mean relative error of the choice at points that it was not chosen by."""
    held_out = np.array_split(np.arange(len(held)), FEWEST_TO_CORRECT)
    return mean_error(np.concatenate([held[rows] @ choose_weights(np.delete(held, rows, 0)) for rows in held_out]))


def combine(base: Float64[np.ndarray, "h w"], points: MeasuredPoints, weights: Weights) -> Float64[np.ndarray, "h w"]:
    """Return log depth as the weights have it of the candidates, from that of the fitted map."""
    size, log_depth, sampled = (base.shape[0], base.shape[1]), np.log(points.depth), sample(base, points)
    trend = contrasted(base, sampled, points)
    trends = np.stack([np.zeros_like(sampled), sampled, sample(trend, points)], 1)
    of_depth, of_error, of_trend = weights[1:].reshape(3, -1)
    by_way = smoothed(points, log_depth[:, None] - trends) @ np.stack([of_depth, of_error, of_trend])
    total = (weights[0] + of_error.sum()) * base + of_trend.sum() * trend
    exact = np.zeros(len(points), bool) if points.noise is None else points.noise == 0
    target = np.where(exact, log_depth - sample(total, points), by_way.sum(1))
    correction = nearest_map(points, by_way[:, 0], size)
    for way, kriging in zip(by_way.T[2:, :, None], KRIGINGS, strict=False):
        correction += Kriging(points.places, way, size, *kriging).as_map()
    # What the triangles have to add, so that the points are met.
    rest = Interpolation(points.places, (target - sample(correction, points))[:, None], size)
    pixels = np.stack(np.meshgrid(np.arange(size[1]), np.arange(size[0])), -1).reshape(-1, 2).astype(np.float64)
    return np.asarray(total + correction + rest.linear(pixels).reshape(size))


def nearest_map(points: MeasuredPoints, values: Values, size: Size) -> Float64[np.ndarray, "h w"]:
    """Return the value of the point nearest to each pixel."""
    columns, rows = points.places.T.astype(int)
    free = np.ones(size, np.uint8)
    free[rows, columns] = 0
    _, labels = cv2.distanceTransformWithLabels(free, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    of_label = np.empty(labels.max() + 1)
    of_label[labels[rows, columns]] = values
    return np.asarray(of_label[labels])
