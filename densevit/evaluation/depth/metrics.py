"""The nine numbers of monocular depth (Eigen et al. 2014), and further sets of metrics, which `--metrics` chooses.

Of one image, over its n measured pixels, in metres where no more is said.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Float64

from densevit.depth_corrections import Interval
from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.geometry_metrics import boundary_depth_pro, boundary_moge, point_metrics
from densevit.evaluation.scores import find_metric, register_metrics
from densevit.evaluation.uncertainty import FORMULAE as UNCERTAINTY_FORMULAE
from densevit.evaluation.uncertainty import uncertainty_metrics
from densevit.ops.align import dot_single_thread, lower_median
from densevit.registry import did_you_mean

Metrics = dict[str, float]

METRICS = ("abs_rel", "sq_rel", "rmse", "rmse_log", "log10", "silog", "d1", "d2", "d3")
"""Their names, in the order of the tables; the deltas are better when larger, the others when smaller."""

FORMULAE = {
    "abs_rel": "mean(|d - p| / d), of ground truth d and prediction p",
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
    """Return the nine metrics of positive depths.

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
    """Return one of the numbers called SILog.

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
    """Return the mean absolute value; overwrites its argument."""
    return float(np.abs(values, out=values).mean())


@dataclass(frozen=True)
class MetricInput:
    """One image as a protocol scores it: aligned, clamped, cut to the region."""

    pixels: Float64[np.ndarray, " n"]  # predicted where ground truth counts
    depths: Float64[np.ndarray, " n"]  # true there
    frame: Float64[np.ndarray, "h w"]  # predicted everywhere in the region
    gt: Float64[np.ndarray, "h w"]  # ground truth there; of meaning where `counted`
    counted: Bool[np.ndarray, "h w"]
    intrinsics: Float[np.ndarray, "3 3"] | None  # of the region
    range: tuple[float, float]  # the protocol's
    fov: float | None = None  # horizontal field of view of the whole image in degrees, where its camera is known
    # the predicted scale of the relative error, where ground truth counts
    scale: Float64[np.ndarray, " n"] | None = None
    interval: Interval | None = None  # as calibrated

    @cached_property
    def errors(self) -> Float64[np.ndarray, " n"]:
        return np.asarray(self.pixels - self.depths)

    @cached_property
    def inverse_errors(self) -> Float64[np.ndarray, " n"]:
        return np.asarray(1 / self.pixels - 1 / self.depths)

    @cached_property
    def logs(self) -> Float64[np.ndarray, " n"]:
        return np.asarray(np.log(self.pixels / self.depths))


@dataclass(frozen=True, kw_only=True)
class MetricSet:
    """Metrics that are computed together."""

    description: str
    formulae: Mapping[str, str]  # of each metric, for prediction p and ground truth d
    compute: Callable[[MetricInput], Metrics]
    larger: Collection[str] = ()  # the metrics of which a larger value is better


def find_sets(names: Iterable[str]) -> list[str]:
    """Return the names, each once. Raises ConfigError if there is no such set."""
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in METRIC_SETS:
            raise ConfigError(f"no set of metrics '{name}'.{did_you_mean(name, METRIC_SETS)}")
    return names


def formula(metric: str) -> str:
    """Return its formula; of a row by distance, its base metric's with the distances."""
    base, _, distances = metric.partition("@")
    text = find_metric("depth", base).description
    if distances.endswith("m"):
        return f"{text}, where {'p' if base == 'coverage_predicted' else 'd'} is in {distances}"
    return f"{text}, of images whose field of view is {distances}" if distances.endswith("deg") else text


def _extra(inputs: MetricInput) -> Metrics:
    return {
        "mae": float(np.abs(inputs.errors).mean()),
        "imae": float(np.abs(inputs.inverse_errors).mean() * 1000),
        "irmse": _irmse(inputs),
    }


def _irmse(inputs: MetricInput) -> float:
    errors = inputs.inverse_errors
    return float(np.sqrt(dot_single_thread(errors, errors) / errors.size) * 1000)


def _silog(inputs: MetricInput) -> Metrics:
    mean = float(inputs.logs.mean())
    squares = float(((inputs.logs - mean) ** 2).sum())
    return {f"silog_{form}": silog_form(form, squares, mean, inputs.logs.size) for form in get_args(SilogForm)}


def _kitti(inputs: MetricInput) -> Metrics:
    relative = inputs.errors / inputs.depths
    return {
        "abs_error_rel": float(np.abs(relative).mean() * 100),
        "sq_error_rel": float(dot_single_thread(relative, relative) / relative.size * 100),
        "irmse": _irmse(inputs),
    }


def _curve(inputs: MetricInput) -> Metrics:
    """UniDepth's: the share of pixels within 1.25^k for 100 k from 0.01 to 5, and the area under that curve."""
    off_by = np.sort(np.abs(inputs.logs))
    exponents = np.linspace(0.01, 5.0, 100)
    shares = np.searchsorted(off_by, exponents * np.log(1.25), side="left") / off_by.size
    return {
        "d_auc": float(np.trapezoid(shares, exponents)) / 5,
        "within_3": float(np.count_nonzero(off_by < np.log(1.03)) / off_by.size),
        "median_log": float(100 * abs(lower_median(inputs.logs))),
    }


def _boundary(inputs: MetricInput) -> Metrics:
    maps = inputs.frame, inputs.gt, inputs.counted
    moge = {f"boundary_moge_{radius}": boundary_moge(*maps, radius=radius) for radius in (1, 2, 3)}
    finite = {name: value for name, value in moge.items() if isfinite(value)}
    return {"boundary_depth_pro": boundary_depth_pro(*maps), **finite}


DISTANCES = (0, 1, 2, 3, 5, 10, 20, 30, 50, 80, 1000)
"""Metres at which the rows by distance begin and end."""


def _distance(inputs: MetricInput) -> Metrics:
    """Return the rows for the ranges of distance that the image has ground truth in."""
    which = np.digitize(inputs.depths, DISTANCES) - 1
    count = np.bincount(which, minlength=len(DISTANCES))
    relative = np.bincount(which, np.abs(inputs.errors) / inputs.depths, len(DISTANCES))
    square = np.bincount(which, inputs.errors**2, len(DISTANCES))
    close = np.bincount(which, np.abs(inputs.logs) < np.log(1.25), len(DISTANCES))
    metrics: Metrics = {}
    for i, (near, far) in enumerate(pairwise(DISTANCES)):
        if count[i]:
            end = f"@{near}-{far}m"
            metrics[f"abs_rel{end}"] = float(relative[i] / count[i])
            metrics[f"rmse{end}"] = float(np.sqrt(square[i] / count[i]))
            metrics[f"d1{end}"] = float(close[i] / count[i])
    return metrics


FIELDS_OF_VIEW = (0, 30, 45, 60, 75, 90, 105, 120, 180)
"""Degrees at which the rows by field of view begin and end."""


def _fov(inputs: MetricInput) -> Metrics:
    """Return the rows for the range that the image's field of view lies in; none where its camera is not known."""
    if inputs.fov is None:
        return {}
    low, high = next((low, high) for low, high in pairwise(FIELDS_OF_VIEW) if inputs.fov < high)
    end = f"@{low}-{high}deg"
    return {
        f"abs_rel{end}": float((np.abs(inputs.errors) / inputs.depths).mean()),
        f"rmse{end}": float(np.sqrt((inputs.errors**2).mean())),
        f"d1{end}": float((np.abs(inputs.logs) < np.log(1.25)).mean()),
    }


def _uncertainty(inputs: MetricInput) -> Metrics:
    if inputs.scale is None:
        raise DataError("this model predicts no uncertainty; train its head with `uncertainty: laplace`.")
    return uncertainty_metrics(inputs.pixels, inputs.depths, inputs.scale, inputs.interval, DISTANCES)


METRIC_SETS: dict[str, MetricSet] = {
    "extra": MetricSet(
        description="errors in metres and in inverse depth",
        formulae={
            "mae": "mean(|d - p|), in metres",
            "imae": "mean(|1/d - 1/p|), in 1/km",
            "irmse": "sqrt(mean((1/d - 1/p)^2)), in 1/km",
        },
        compute=_extra,
    ),
    "silog": MetricSet(
        description="each number that is published as SILog; e = ln p - ln d",
        formulae={
            "silog_percent": "100 sqrt(var(e))",
            "silog_half": "sqrt(mean(e^2) - mean(e)^2 / 2)",
            "silog_unbiased": "100 sqrt(n / (n - 1) var(e))",
            "silog_log10": "sqrt(var(log10 p - log10 d))",
        },
        compute=_silog,
    ),
    "kitti": MetricSet(
        description="the KITTI depth benchmark's, beside SILog",
        formulae={
            "abs_error_rel": "100 mean(|d - p| / d), in percent",
            "sq_error_rel": "100 mean(((d - p) / d)^2), in percent",
            "irmse": "sqrt(mean((1/d - 1/p)^2)), in 1/km",
        },
        compute=_kitti,
    ),
    "curve": MetricSet(
        description="UniDepth's: the curve of the deltas",
        formulae={
            "d_auc": "area under the share of pixels with max(p / d, d / p) < 1.25^k, as UniDepth computes it",
            "within_3": "share of pixels with max(p / d, d / p) < 1.03",
            "median_log": "100 |median(ln p - ln d)|",
        },
        compute=_curve,
        larger=("d_auc", "within_3"),
    ),
    "boundary": MetricSet(
        description="F1 of depth edges between neighbours that both have ground truth; for dense ground truth",
        formulae={
            "boundary_depth_pro": "F1 of neighbours of which one is 1.05 to 1.25 times as far (Depth Pro)",
            **{
                f"boundary_moge_{r}": f"F1 of neighbours up to {r} px away that are 1.05 to 1.25 times as far (MoGe)"
                for r in (1, 2, 3)
            },
        },
        compute=_boundary,
        larger=("boundary_depth_pro", *(f"boundary_moge_{r}" for r in (1, 2, 3))),
    ),
    "distance": MetricSet(
        description="AbsRel, RMSE and delta by ranges of distance, over the images with ground truth there",
        formulae={},
        compute=_distance,
    ),
    "points": MetricSet(
        description="the point cloud, from the camera's intrinsics, at most 76,800 points of an image",
        formulae={
            "f_score_5cm": "F1 of points with a point of the other cloud within 5 cm",
            "f_score_25cm": "F1 of points with a point of the other cloud within 25 cm",
            "f_auc": "UniDepth's area under F1 against 100 thresholds, which it compares with squared distances",
            "chamfer": "mean distance to the other cloud, of both, in metres",
        },
        compute=lambda x: point_metrics(x.frame, x.gt, x.counted, x.intrinsics, furthest=x.range[1]),
        larger=("f_score_5cm", "f_score_25cm", "f_auc"),
    ),
    "fov": MetricSet(
        description="AbsRel, RMSE and delta by the camera's horizontal field of view in degrees",
        formulae={},
        compute=_fov,
    ),
    "uncertainty": MetricSet(
        description="coverage of the predicted intervals, also by distance, and sparsification by the uncertainty",
        formulae=UNCERTAINTY_FORMULAE,
        compute=_uncertainty,
        larger=("aurg_abs_rel", "aurg_rmse", "aurg_d1"),
    ),
}
"""Name -> set. A plug-in adds one by `register_set`."""


def register_set(name: str, metric_set: MetricSet) -> None:
    """Register a set of metrics of depth for `evaluate(metrics=[name])`. Raises ConfigError: it redefines a metric."""
    if taken := metric_set.formulae.keys() & FORMULAE.keys():
        raise ConfigError(f"set of metrics '{name}': {', '.join(sorted(taken))} is densevit's; take another name.")
    METRIC_SETS[name] = metric_set
    smaller = {metric: text for metric, text in metric_set.formulae.items() if metric not in metric_set.larger}
    register_metrics("depth", smaller)
    register_metrics("depth", {metric: metric_set.formulae[metric] for metric in metric_set.larger}, "max")


for _name, _set in list(METRIC_SETS.items()):
    register_set(_name, _set)
register_metrics("depth", {name: UNCERTAINTY_FORMULAE[name] for name in ("coverage", "coverage_predicted")}, None)
register_metrics("depth", {name: UNCERTAINTY_FORMULAE[name] for name in METRIC_SETS["uncertainty"].larger}, "max", 0.0)
