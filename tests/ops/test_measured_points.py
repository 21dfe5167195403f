"""Fits of maps to measured points, on a scene whose depth is known."""

import tracemalloc

import numpy as np
import pytest
from jaxtyping import Float
from scipy.spatial import cKDTree

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


@pytest.mark.parametrize("rise", [0, 1 / 3])
def test_points_of_a_scanner_of_one_plane_correct_along_their_line_and_add_nothing_across_it(rise: float) -> None:
    u = np.arange(0.0, W, 2)
    v = np.rint(H / 3 + rise * u)
    given = MeasuredPoints(u, v, scene()[v.astype(int), u.astype(int)])
    depth, _ = fit_to_points(BENT, given, "metric")
    np.testing.assert_allclose(sample(depth, given), given.depth, rtol=1e-5)
    assert abs_rel(depth) < 0.03 < 0.09 < abs_rel(BENT)


def test_a_map_that_tells_nothing_gives_way_to_interpolation() -> None:
    flat = 1 + np.random.default_rng(0).random((H, W))
    depth, fit = fit_to_points(flat, points(300), "metric")
    assert fit.error is not None and fit.interpolation is not None and fit.error <= 1.02 * fit.interpolation
    assert abs_rel(depth) < 0.05


@pytest.mark.parametrize("count", [5, *(pytest.param(count, marks=pytest.mark.slow) for count in (20, 50))])
def test_noise_of_the_points_of_an_exact_map_is_not_taken_for_its_error(count: int) -> None:
    """White noise of 10% on points of an exact map: next to nothing is changed, whether the noise is given or not."""
    scaled, errors, reported, told = [], [], [], []
    for seed in range(30):
        some = points(count, seed, noise=0.1)
        depth, fit = fit_to_points(scene(), some, "metric")
        errors.append(abs_rel(depth))
        reported.append(fit.error)
        scaled.append(abs_rel(scene() * np.median(some.depth / sample(scene(), some))))
        given = MeasuredPoints(some.u, some.v, some.depth, 0.1 * some.depth)
        told.append(abs_rel(fit_to_points(scene(), given, "metric")[0]))
    assert np.mean(errors) < 1.1 * np.mean(scaled) < 0.1 and np.mean(told) < 1.1 * np.mean(scaled)
    # The points' own noise is in what is reported: 10% is 0.08 in the mean.
    assert np.mean(np.array(reported, float)) == pytest.approx(0.09, abs=0.02)


@pytest.mark.slow
def test_few_points_lean_on_the_map_and_on_interpolation_by_what_both_are_worth() -> None:
    ramp = np.linspace(3, 1, H)[:, None].repeat(W, 1)
    for count in (5, 10, 20):
        ours: list[list[float]] = []
        for seed in range(12):
            some = points(count, seed)
            nearest = some.depth[cKDTree(some.places).query(np.argwhere(np.ones((H, W)))[:, ::-1])[1]].reshape(H, W)
            maps = [fit_to_points(each, some, "metric")[0] for each in (BENT, ramp)]
            fitted = BENT * np.median(some.depth / sample(BENT, some))
            ours.append([abs_rel(each) for each in (*maps, fitted, nearest)])
        good, foreign, fitted, nearest = np.mean(ours, 0)
        assert good < fitted and foreign < nearest


def test_the_mirrored_image_with_points_in_another_order_gets_the_mirrored_map() -> None:
    some = points(60, noise=0.05)
    depth, fit = fit_to_points(BENT, some, "metric")
    mirrored = MeasuredPoints(W - 1 - some.u, some.v, some.depth).take(np.arange(60)[::-1])
    other, other_fit = fit_to_points(BENT[:, ::-1], mirrored, "metric")
    assert other_fit.error == pytest.approx(fit.error, rel=1e-2)
    assert np.abs(other[:, ::-1] / depth - 1).mean() < 1e-3


def test_points_whose_noise_is_said_to_be_0_are_met_whatever_the_map_is_worth() -> None:
    some = points(20, noise=0.1)
    noise = np.where(np.arange(20) < 5, 0, 0.3 * some.depth)
    depth, _ = fit_to_points(scene(), MeasuredPoints(some.u, some.v, some.depth, noise), "metric")
    np.testing.assert_allclose(sample(depth, some)[:5], some.depth[:5], rtol=1e-5)


def test_points_weigh_by_their_noise() -> None:
    good, bad = points(60), points(200, seed=1, noise=0.3)
    both = [np.concatenate([getattr(good, name), getattr(bad, name)]) for name in ("u", "v", "depth")]
    noise = np.concatenate([np.zeros(60), 0.3 * bad.depth])
    unweighted, weighted = (abs_rel(fit_to_points(BENT, MeasuredPoints(*both, n), "metric")[0]) for n in (None, noise))
    assert weighted < 0.5 * unweighted
    depth, _ = fit_to_points(BENT, MeasuredPoints(*both, noise), "metric")
    np.testing.assert_allclose(sample(depth, good), good.depth, rtol=1e-3)


def test_interpolations_meet_their_points_and_linear_ones_give_a_plane_back() -> None:
    places = points(30).places
    plane = Interpolation(places, 2 + places @ [[0.03], [-0.01]], (H, W))
    elsewhere = points(50, seed=1).places
    for way in (1, 2):
        np.testing.assert_allclose(plane(elsewhere)[0, :, way], 2 + elsewhere @ [0.03, -0.01], atol=1e-5)
    np.testing.assert_allclose(plane(places)[0], plane.values.repeat(4, 1), atol=1e-5)


def test_candidates_are_judged_by_points_that_they_did_not_see() -> None:
    given = points(8)
    held = leave_out(sample(scene(), given), given, "metric", (H, W))
    assert held.shape == (8, 13) and np.abs(held[:, 0]).max() < 1e-9 < np.abs(held[:, 1]).min()


def test_a_map_that_points_were_an_input_of_is_corrected_where_that_helps_and_else_stays_as_it_is() -> None:
    np.testing.assert_array_equal(fit_to_points(scene(), points(50), None)[0], np.float32(scene()))
    for count in (100, 1000):
        some = points(count)
        depth, _ = fit_to_points(BENT, some, None)
        assert abs_rel(depth) < 0.2 * abs_rel(BENT)
        np.testing.assert_allclose(sample(depth, some), some.depth, rtol=1e-5)


@pytest.mark.slow
def test_memory_grows_with_the_points_and_not_faster() -> None:
    truth = scene(480, 640)
    peaks = []
    for count in (12_500, 50_000):
        given = points(count, truth=truth)
        tracemalloc.start()
        fit_to_points(truth + 1, given, "metric")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 5 * peaks[0]


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
    with pytest.raises(DataError, match="a map of uint16; depth is floats in metres"):
        as_points(expected.astype(np.uint16), (3, 5))


def test_too_few_points_and_a_map_that_runs_against_them_are_refused() -> None:
    with pytest.raises(DataError, match="2 points have a value in the map; a disparity map needs 3"):
        fit_to_points(MAPS["disparity"], points(2), "disparity")
    with pytest.raises(DataError, match="the map runs against the 40 points"):
        fit_to_points(MAPS["disparity"], points(40), "affine")
