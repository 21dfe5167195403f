"""Fits of scale and shift, against numpy's and at their edges."""

import itertools

import numpy as np
import pytest

from densevit.errors import DataError
from densevit.ops.align import (
    ALIGNMENTS,
    OF_DISPARITY,
    least_absolute,
    least_squares,
    lower_median,
    median_scale,
    weighted_median,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(1, 9, 500)
Y = 3 * X - 2 + RNG.normal(0, 0.5, 500)


def test_least_squares_is_numpys() -> None:
    assert least_squares(X, Y) == pytest.approx(tuple(np.polyfit(X, Y, 1)), rel=1e-10)


def test_least_squares_survives_a_large_offset() -> None:
    """Raw normal equations lose the variance of 1e8 + x in float64; the centred ones keep 7 digits."""
    scale, shift = least_squares(1e8 + X, Y)
    reference = least_squares(X, Y)
    assert scale == pytest.approx(reference[0], rel=1e-6)
    assert scale * 1e8 + shift == pytest.approx(reference[1], abs=1e-4)


def test_a_constant_prediction_becomes_the_mean() -> None:
    assert least_squares(np.full(500, 0.1), Y) == (0.0, pytest.approx(Y.mean()))


def test_what_is_not_finite_is_left_out_of_the_fit() -> None:
    x = X.copy()
    x[:3] = [np.nan, np.inf, -np.inf]
    assert least_squares(x, Y) == least_squares(X[3:], Y[3:])
    assert np.isnan(ALIGNMENTS["lstsq"](x, Y, 10.0)(x)[0])


def test_median_scale_by_hand() -> None:
    assert median_scale(np.array([1.0, 2.0, 9.0]), np.array([6.0, 6.0, 1.0])) == 3
    x = np.array([1.0, 2.0, 9.0])
    np.testing.assert_array_equal(ALIGNMENTS["median"](x, np.array([6.0, 6.0, 1.0]), 80.0)(x), [3, 6, 27])


def test_disparity_may_be_turned_around_and_is_floored_at_the_furthest_depth() -> None:
    fit, depth = ALIGNMENTS["lstsq_disparity"], np.array([1.0, 2.0, 4.0, 8.0])
    np.testing.assert_allclose(fit(-1 / depth, depth, 80.0)(-1 / depth), depth)
    assert fit(1 / depth, depth, 80.0)(np.array([-9.0, 0.001, 0.5])) == pytest.approx([80, 80, 2])


@pytest.mark.parametrize("fit", ALIGNMENTS.values(), ids=ALIGNMENTS)
def test_nothing_to_fit_is_a_fault(fit: object) -> None:
    with pytest.raises(DataError, match="no pixel"):
        fit(np.array([np.nan]), np.array([1.0]), 80.0)  # type: ignore[operator]


def test_median_scaling_of_what_is_not_depth_is_a_fault() -> None:
    with pytest.raises(DataError, match="over 0"):
        median_scale(np.array([-1.0, -2.0]), np.array([1.0, 2.0]))


DEPTH = np.random.default_rng(1).uniform(1, 9, 400)
KNOWN_UP_TO = {
    "median": 0.2 * DEPTH, "median_lower": 0.2 * DEPTH, "log_scale": 0.2 * DEPTH, "l1_scale": 0.2 * DEPTH,
    "lstsq": 0.2 * DEPTH + 3, "l1": 0.2 * DEPTH + 3, "lstsq_log": 7 * DEPTH**0.3, "lstsq_disparity": 5 / DEPTH + 7,
    "lstsq_disparity_positive": 5 / DEPTH + 7, "lstsq_disparity_truth": 5 / DEPTH + 7,
}  # fmt: skip


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_an_alignment_undoes_what_its_predictions_are_known_up_to(name: str) -> None:
    x = KNOWN_UP_TO[name]
    np.testing.assert_allclose(ALIGNMENTS[name](x, DEPTH, 80.0)(x), DEPTH, rtol=1e-9)
    assert (name in OF_DISPARITY) == ("disparity" in name)


def test_a_fit_on_some_pixels_is_applied_to_all() -> None:
    x = 0.2 * DEPTH + 3
    np.testing.assert_allclose(ALIGNMENTS["lstsq"](x[:50], DEPTH[:50], 80.0)(x), DEPTH)


@pytest.mark.parametrize("count", [3, 4, 5, 40])
def test_least_absolute_errors_are_least(count: int) -> None:
    """No line through two of the points does better: an optimum goes through two."""
    for seed in range(20 if count < 40 else 1):
        rng = np.random.default_rng(seed)
        x, y, w = rng.normal(5, 2, count), rng.normal(3, 4, count), rng.uniform(0.1, 1, count)
        best = np.inf
        for i, j in itertools.combinations(range(count), 2):
            scale = (y[i] - y[j]) / (x[i] - x[j])
            best = min(best, float((w * np.abs(scale * (x - x[i]) + y[i] - y)).sum()))
        scale, shift = least_absolute(x, y, w)
        assert (w * np.abs(scale * x + shift - y)).sum() == pytest.approx(best, rel=1e-9)


def test_least_absolute_errors_ignore_a_few_wild_pixels() -> None:
    y = 2 * X + 1
    y[:50] += 1000
    assert least_absolute(X, y, np.ones(500)) == pytest.approx((2, 1), rel=1e-9)


@pytest.mark.parametrize("value", [2.0, 0.1])  # the mean of 13 times 0.1 is not 0.1
def test_a_constant_prediction_becomes_the_weighted_median(value: float) -> None:
    target = np.sqrt(np.arange(1.0, 14))
    scale, shift = least_absolute(np.full(13, value), target, 1 / target)
    assert abs(scale) < 1
    assert scale * value + shift == pytest.approx(5**0.5, rel=1e-12)


def test_medians_of_even_counts() -> None:
    assert lower_median(np.array([4.0, 1.0, 3.0, 2.0])) == 2
    assert weighted_median(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 3.0])) == 3
    assert weighted_median(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 1.0])) == 1
