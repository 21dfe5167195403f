"""Fits of scale and shift, against numpy's and at their edges."""

import numpy as np
import pytest

from densevit.errors import DataError
from densevit.ops.align import ALIGNMENTS, by_disparity, by_least_squares, by_median, least_squares, median_scale

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
    assert np.isnan(by_least_squares(x, Y, 10.0)[0])


def test_median_scale_by_hand() -> None:
    assert median_scale(np.array([1.0, 2.0, 9.0]), np.array([6.0, 6.0, 1.0])) == 3
    np.testing.assert_array_equal(by_median(np.array([1.0, 2.0, 9.0]), np.array([6.0, 6.0, 1.0]), 80.0), [3, 6, 27])


def test_disparity_is_inverted_and_floored_at_the_furthest_depth() -> None:
    depth = np.array([1.0, 2.0, 4.0, 8.0])
    np.testing.assert_allclose(by_disparity(7 / depth - 3, depth, 80.0), depth)
    np.testing.assert_allclose(by_disparity(-1 / depth, depth, 80.0), depth)  # the fit may turn it around
    assert by_disparity(np.array([1.0, 0.5, 0.25, -9.0]), depth, 80.0).max() <= 80.0


@pytest.mark.parametrize("fit", ALIGNMENTS.values(), ids=ALIGNMENTS)
def test_nothing_to_fit_is_a_fault(fit: object) -> None:
    with pytest.raises(DataError, match="no pixel"):
        fit(np.array([np.nan]), np.array([1.0]), 80.0)  # type: ignore[operator]


def test_median_scaling_of_what_is_not_depth_is_a_fault() -> None:
    with pytest.raises(DataError, match="over 0"):
        median_scale(np.array([-1.0, -2.0]), np.array([1.0, 2.0]))
