"""Fits of maps to measured points, on a scene whose depth is known."""

from time import process_time

import numpy as np
import pytest
from jaxtyping import Float

from densevit.errors import DataError
from densevit.inference.point_fit import Interpolation, fit_to_points, leave_out
from densevit.model_card import Kind
from densevit.ops.align import robust_line
from densevit.ops.points import MeasuredPoints, as_points, points_as_map, sample

H, W = 60, 80


def scene(h: int = H, w: int = W) -> Float[np.ndarray, "h w"]:
    """A floor that recedes, and a wall 2 m further on the right half."""
    rows, columns = np.mgrid[:h, :w] / np.array([h, w]).reshape(2, 1, 1)
    return 2 + 3 * rows + np.where(columns > 0.5, 2, 0)


def points(count: int, seed: int = 0, noise: float = 0, truth: np.ndarray | None = None) -> MeasuredPoints:
    """Points in pixels of their own, with relative white noise."""
    truth, draw = scene() if truth is None else truth, np.random.default_rng(seed)
    v, u = np.divmod(draw.choice(truth.size, count, replace=False), truth.shape[1])
    return MeasuredPoints(u * 1.0, v * 1.0, truth[v, u] * np.exp(draw.normal(0, noise, count)))


def abs_rel(depth: np.ndarray) -> float:
    return float(np.mean(np.abs(depth - scene()) / scene()))


MAPS = {"metric": scene() * 1.7, "affine": 0.4 * scene() - 0.3, "disparity": 3 / scene() + 0.2}
BENT = scene() * np.exp(0.4 * (np.arange(W) / W - 0.5))


@pytest.mark.parametrize("kind", ["metric", "affine", "disparity"])
def test_a_map_of_each_kind_becomes_metres_in_spite_of_outliers(kind: Kind) -> None:
    depth, fit = fit_to_points(MAPS[kind], points(40), kind)
    assert abs_rel(depth) < 1e-6 and fit.points == 40 and fit.error == pytest.approx(0, abs=1e-6)
    given = points(40)
    given.depth[:6] *= 3
    assert abs_rel(fit_to_points(MAPS[kind], given, kind)[0]) < 0.02


@pytest.mark.parametrize("kind", ["metric", "affine", "disparity"])
def test_a_smooth_error_is_corrected_and_exact_points_are_met(kind: Kind) -> None:
    values = {"metric": BENT, "affine": BENT - 1, "disparity": 1 / BENT}[kind]
    given = points(100)
    depth, fit = fit_to_points(values, given, kind)
    assert fit.error is not None and fit.interpolation is not None
    assert abs_rel(depth) < 0.02 and fit.error < 0.5 * fit.interpolation
    np.testing.assert_allclose(sample(depth, given), given.depth, rtol=1e-5)


def test_a_map_that_tells_nothing_gives_way_to_interpolation() -> None:
    flat = 1 + np.random.default_rng(0).random((H, W))
    depth, fit = fit_to_points(flat, points(300), "metric")
    assert fit.error is not None and fit.interpolation is not None and fit.error <= 1.02 * fit.interpolation
    assert abs_rel(depth) < 0.05


def test_noise_of_the_points_of_an_exact_map_is_not_taken_for_its_error() -> None:
    """White noise of 10% on 20 points of an exact map: no correction is certain, so that mostly none is made."""
    errors, reported, scaled = [], [], []
    for seed in range(30):
        given = points(20, seed, noise=0.1)
        depth, fit = fit_to_points(scene(), given, "metric")
        errors.append(abs_rel(depth))
        reported.append(fit.error)
        scaled.append(abs_rel(scene() * np.median(given.depth / scene()[given.v.astype(int), given.u.astype(int)])))
    assert np.mean(errors) < 1.6 * np.mean(scaled)
    assert np.mean(np.isclose(errors, scaled, rtol=1e-3)) > 0.7
    # The points' own noise is in what is reported: 10% is 0.08 in the mean.
    assert np.mean(np.array(reported, float)) == pytest.approx(0.085, abs=0.015)


def test_points_weigh_by_their_noise() -> None:
    good, bad = points(60), points(200, seed=1, noise=0.3)
    both = [np.concatenate([getattr(good, name), getattr(bad, name)]) for name in ("u", "v", "depth")]
    noise = np.concatenate([np.zeros(60), 0.3 * bad.depth])
    unweighted, weighted = (abs_rel(fit_to_points(BENT, MeasuredPoints(*both, n), "metric")[0]) for n in (None, noise))
    assert weighted < 0.5 * unweighted
    depth, _ = fit_to_points(BENT, MeasuredPoints(*both, noise), "metric")
    np.testing.assert_allclose(sample(depth, good), good.depth, rtol=1e-3)


def test_kriging_gives_a_plane_back_and_meets_its_points() -> None:
    places = points(30).places
    plane = Interpolation(places, 2 + places @ [[0.03], [-0.01]], (H, W))
    elsewhere = points(50, seed=1).places
    for way in (1, 2):
        np.testing.assert_allclose(plane(elsewhere)[0, :, way], 2 + elsewhere @ [0.03, -0.01], atol=1e-5)
    np.testing.assert_allclose(plane(places)[0], plane.values.repeat(3, 1), atol=1e-5)


def test_candidates_are_judged_by_points_that_they_did_not_see() -> None:
    given = points(8)
    held = leave_out(sample(scene(), given), given, "metric", (H, W))
    assert held.shape == (8, 8) and np.abs(held[:, 0]).max() < 1e-9 < np.abs(held[:, 2]).min()


@pytest.mark.slow
def test_the_time_grows_with_the_points_and_not_faster() -> None:
    truth = scene(480, 640)
    seconds = []
    for count in (12_500, 50_000):
        given, start = points(count, truth=truth), process_time()
        fit_to_points(truth + 1, given, "metric")
        seconds.append(process_time() - start)
    assert seconds[1] < 5 * seconds[0] and seconds[1] < 5


def test_a_line_is_the_least_squares_one_without_outliers() -> None:
    x = np.linspace(0, 1, 30)
    y = 2 * x + 1
    assert robust_line(x, y, np.ones(30)) == pytest.approx((2, 1))
    y[3] = 50
    assert robust_line(x, y, np.ones(30)) == pytest.approx((2, 1), abs=0.01)


def test_of_several_points_in_a_pixel_the_nearest_counts() -> None:
    given = as_points(np.array([[3.2, 1.0, 5.0], [2.9, 1.4, 4.0], [0, 0, 7]]), (3, 5))
    expected = np.zeros((3, 5))
    expected[1, 3], expected[0, 0] = 4, 7
    np.testing.assert_array_equal(points_as_map(given, (3, 5)), expected)


def test_too_few_points_and_a_map_that_runs_against_them_are_refused() -> None:
    with pytest.raises(DataError, match="2 points have a value in the map; a disparity map needs 3"):
        fit_to_points(MAPS["disparity"], points(2), "disparity")
    with pytest.raises(DataError, match="the map runs against the 40 points"):
        fit_to_points(MAPS["disparity"], points(40), "affine")
