"""Fits of maps to measured points, on a scene whose depth is known."""

import numpy as np
import pytest
from jaxtyping import Float

from densevit.errors import DataError
from densevit.model_card import Kind
from densevit.ops.measured_points import (
    MeasuredPoints,
    fit_to_points,
    kernel,
    leave_one_out,
    local_correction,
    robust_line,
)

H, W = 60, 80


def scene() -> Float[np.ndarray, "h w"]:
    """A floor that recedes, and a wall 2 m further on the right half."""
    rows, columns = np.mgrid[:H, :W] / np.array([H, W]).reshape(2, 1, 1)
    return 2 + 3 * rows + np.where(columns > 0.5, 2, 0)


def points(count: int, seed: int = 0) -> MeasuredPoints:
    draw = np.random.default_rng(seed)
    u, v = draw.integers(0, W, count), draw.integers(0, H, count)
    return MeasuredPoints(u.astype(float), v.astype(float), scene()[v, u])


def abs_rel(depth: np.ndarray) -> float:
    return float(np.mean(np.abs(depth - scene()) / scene()))


MAPS = {"metric": scene() * 1.7, "affine": 0.4 * scene() - 0.3, "disparity": 3 / scene() + 0.2}


@pytest.mark.parametrize("kind", ["metric", "affine", "disparity"])
def test_a_map_of_each_kind_becomes_metres_in_spite_of_outliers(kind: Kind) -> None:
    exact = fit_to_points(MAPS[kind], points(40), kind)
    assert abs_rel(exact.depth) < 1e-6 and exact.residual < 1e-6 and exact.points == 40
    given = points(40)
    given.depth[:6] *= 3
    assert abs_rel(fit_to_points(MAPS[kind], given, kind).depth) < 0.02


@pytest.mark.parametrize("kind", ["metric", "affine", "disparity"])
def test_a_smooth_error_is_corrected_locally_and_the_residual_of_points_left_out_tells(kind: Kind) -> None:
    columns = np.arange(W) / W
    bent = scene() * np.exp(0.4 * (columns - 0.5))
    values = {"metric": bent, "affine": bent - 1, "disparity": 1 / bent}[kind]
    found = fit_to_points(values, points(100), kind)
    only_global = fit_to_points(values, points(7), kind)  # too few for a local correction
    assert only_global.residual == only_global.corrected
    assert abs_rel(found.depth) < 0.25 * abs_rel(only_global.depth)
    assert found.corrected < 0.3 * found.residual


def test_errors_without_a_pattern_are_not_corrected() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 60)
    given = points(60, seed=1)
    factor, left = local_correction(scene(), given, noise)
    if factor is not None:  # what chance made look like a pattern stays small
        assert np.abs(np.log(factor)).mean() < 0.05
    assert np.abs(left).mean() <= np.abs(noise).mean() * 1.0001


def test_leaving_one_out_is_what_fitting_without_it_gives() -> None:
    draw = np.random.default_rng(0)
    places, errors, reach = draw.uniform(0, 1, (12, 3)), draw.normal(size=12), (0.3, 0.5, 0.5)
    rest, _ = leave_one_out(places, errors, reach)

    for i in range(12):
        others = np.arange(12) != i
        gram = kernel(places[others], places[others], reach) + reach[2] * np.eye(11)
        guess = kernel(places[i : i + 1], places[others], reach) @ np.linalg.solve(gram, errors[others])
        assert rest[i] == pytest.approx(float(guess[0]) - errors[i])


def test_a_line_is_the_least_squares_one_without_outliers() -> None:
    x = np.linspace(0, 1, 30)
    y = 2 * x + 1
    assert robust_line(x, y, np.ones(30)) == pytest.approx((2, 1))
    y[3] = 50
    assert robust_line(x, y, np.ones(30)) == pytest.approx((2, 1), abs=0.01)


def test_too_few_points_and_a_map_that_runs_against_them_are_refused() -> None:
    with pytest.raises(DataError, match="2 points have a value in the map; a disparity map needs 3"):
        fit_to_points(MAPS["disparity"], points(2), "disparity")
    with pytest.raises(DataError, match="the map runs against the 40 points"):
        fit_to_points(MAPS["disparity"], points(40), "affine")
