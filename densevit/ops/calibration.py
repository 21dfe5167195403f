"""Calibrations of metric depth: a correction that was measured on images and is part of a model card."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from densevit.depth_corrections import Calibration, Interval
from densevit.model_card import uncertainty_of
from densevit.ops.align import robust_line

FORMS = ("identity", "scale", "affine", "log_affine")
LEAST = 1e-3  # metres: no calibration gives less

Values = Float64[np.ndarray, " n"]


def calibrate(depth: Float[Tensor, "*shape"], calibration: Calibration) -> Float[Tensor, "*shape"]:
    """Return the depth in metres, corrected: a depth + b, or exp(a log(depth) + b)."""
    a, b = calibration.a, calibration.b
    if calibration.form == "log_affine":
        return (a * depth.clamp(min=LEAST).log() + b).exp()
    return torch.clamp(a * depth + b, min=LEAST)


def calibrate_head(name: str, outputs: Mapping[str, Tensor], calibration: Calibration) -> dict[str, Tensor]:
    """Return a head's depth, corrected, and its uncertainty, where it has one, as that of the corrected depth."""
    depth, uncertainty = outputs[name], uncertainty_of(name)
    corrected = {name: calibrate(depth, calibration)}
    if uncertainty in outputs:
        corrected[uncertainty] = outputs[uncertainty] * error_scale(depth, calibration)
    return corrected


def corrects_the_mean(name: str, outputs: Collection[str], calibration: Calibration) -> bool:
    """Return whether `calibrate_head` must correct the mean of predictions, which is not that of corrected ones."""
    return calibration.form == "log_affine" or bool(calibration.b and uncertainty_of(name) in outputs)


def error_scale(depth: Float[Tensor, "*shape"], calibration: Calibration) -> Float[Tensor, "*shape"] | float:
    """Return what a small error of the logarithm of depth is multiplied by when `calibrate` corrects this depth."""
    if calibration.form == "log_affine":
        return abs(calibration.a)
    return calibration.a * depth / calibrate(depth, calibration) if calibration.b else 1.0


def uncalibrate(depth: Float[Tensor, "*shape"], calibration: Calibration) -> Float[Tensor, "*shape"]:
    """Return the depth that `calibrate` makes this depth of."""
    a, b = calibration.a, calibration.b
    if calibration.form == "log_affine":
        return ((depth.clamp(min=LEAST).log() - b) / a).exp()
    return torch.clamp((depth - b) / a, min=LEAST)


def fit_calibration(form: Any, depth: Values, truth: Values) -> Calibration:
    """Return the correction of a form, robust against outliers, of relative errors."""
    if form == "scale":
        return Calibration(form=form, a=float(np.exp(np.median(np.log(truth / depth)))))
    if form == "affine":
        a, b = robust_line(depth, truth, 1 / truth)
        return Calibration(form=form, a=a, b=b)
    a, b = robust_line(np.log(depth), np.log(truth), np.ones_like(depth))
    return Calibration(form=form, a=a, b=b)


CUTS = 50  # of a sparsification curve, as in mono-uncertainty
CONFIDENT = math.log(1.25)  # the error under which a pixel counts as right: delta < 1.25


def confidence(scale: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return the probability, under a Laplace distribution, that depth is within a factor of 1.25."""
    return np.asarray(-np.expm1(-CONFIDENT / scale))


def widths(
    depth: Float[np.ndarray, "*shape"], scale: Float[np.ndarray, "*shape"], interval: Interval
) -> Float64[np.ndarray, "*shape"]:
    """Return half the interval of each pixel, in natural logarithms of depth: it is depth * exp(-+ width)."""
    factors = np.interp(np.log(depth), np.log(interval.depths), interval.factors)
    return np.asarray(factors * scale, dtype=np.float64)


def laplace_interval(level: float) -> Interval:
    """Return what a Laplace distribution itself would have, uncalibrated."""
    return Interval(level=level, depths=(1.0,), factors=(-math.log(1 - level),), images=0, data="")


def sparsification(errors: Float64[np.ndarray, " n"], ranking: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " k"]:
    """Return the mean of the errors that are left when the 0, 2, ... 98 % with the largest ranking are taken out; then
    0.

    Ties are broken at random, the same way every time, so that a constant ranking is a random one.
    """
    order = np.lexsort((np.random.default_rng(0).permutation(len(errors)), ranking))
    remaining = len(errors) - np.arange(CUTS) * len(errors) // CUTS
    return np.append(np.cumsum(errors[order])[remaining - 1] / remaining, 0.0)


def area(curve: Float64[np.ndarray, " k"]) -> float:
    """Return the area under a curve over 0 to 1, by trapezoids."""
    return float(((curve[1:] + curve[:-1]) / 2).mean())
