"""Intervals of depth from a predicted Laplace scale, and how well such scales rank errors. n pixels."""

import math

import numpy as np
from jaxtyping import Float, Float64

from densevit.depth_corrections import Interval

CUTS = 50  # of a sparsification curve, as in mono-uncertainty
CONFIDENT = math.log(1.25)  # the error under which a pixel counts as right: delta < 1.25


def confidence(scale: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The probability, under a Laplace distribution, that depth is within a factor of 1.25."""
    shares: Float[np.ndarray, "*shape"] = -np.expm1(-CONFIDENT / scale)
    return shares


def widths(
    depth: Float[np.ndarray, "*shape"], scale: Float[np.ndarray, "*shape"], interval: Interval
) -> Float64[np.ndarray, "*shape"]:
    """Half the interval of each pixel, in natural logarithms of depth: it is depth * exp(-+ width)."""
    factors = np.interp(np.log(depth), np.log(interval.depths), interval.factors)
    return np.asarray(factors * scale, dtype=np.float64)


def laplace_interval(level: float) -> Interval:
    """What a Laplace distribution itself would have, uncalibrated."""
    return Interval(level=level, depths=(1.0,), factors=(-math.log(1 - level),), images=0, data="")


def sparsification(errors: Float64[np.ndarray, " n"], ranking: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " k"]:
    """The mean of the errors that are left when the 0, 2, ... 98 % with the largest ranking are taken out; then 0.

    Ties are broken at random, the same way every time, so that a constant ranking is a random one.
    """
    order = np.lexsort((np.random.default_rng(0).permutation(len(errors)), ranking))
    remaining = len(errors) - np.arange(CUTS) * len(errors) // CUTS
    return np.append(np.cumsum(errors[order])[remaining - 1] / remaining, 0.0)


def area(curve: Float64[np.ndarray, " k"]) -> float:
    """Under a curve over 0 to 1, by trapezoids."""
    return float(((curve[1:] + curve[:-1]) / 2).mean())
