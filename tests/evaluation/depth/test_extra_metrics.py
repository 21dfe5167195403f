"""Metrics beyond the nine, by hand and by brute force."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.geometry_metrics import boundary_depth_pro, boundary_moge, point_metrics, subsample
from densevit.evaluation.depth.metrics import METRIC_SETS, MetricInput, depth_metrics, find_sets, formula
from densevit.evaluation.depth.preprocess import columns_to_1024, grid_of_64
from densevit.evaluation.depth.protocol import COUNTS
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.scores import METRICS, find_metric

CAMERA = np.array([[50.0, 0, 15.5], [0, 50, 11.5], [0, 0, 1]])


def seen(prediction: list[float], truth: list[float]) -> MetricInput:
    p, d = np.array(prediction, float), np.array(truth, float)
    return MetricInput(p, d, p[None], d[None], np.ones((1, d.size), bool), None, (1e-3, 80.0))


def test_errors_in_metres_and_inverse_depth_and_kittis_squared_ratios_by_hand() -> None:
    """Truth 1 2 4, prediction 2 2 2: errors 1 0 -2; inverse -0.5 0 0.25 per metre."""
    found = METRIC_SETS["extra"].compute(seen([2, 2, 2], [1, 2, 4]))
    assert found == pytest.approx({"mae": 1.0, "imae": 250.0, "irmse": 1000 * math.sqrt((0.25 + 0.0625) / 3)})
    found = METRIC_SETS["kitti"].compute(seen([2, 2, 2], [1, 2, 4]))
    assert found["abs_error_rel"] == pytest.approx(50) and found["sq_error_rel"] == pytest.approx(125 / 3)


def test_each_silog_is_its_published_expression() -> None:
    rng = np.random.default_rng(0)
    d = rng.uniform(1, 9, 500)
    p = d * np.exp(rng.normal(0.2, 0.3, 500))
    e, tens = np.log(p) - np.log(d), np.log10(p) - np.log10(d)
    published = {
        "percent": 100 * np.sqrt(np.mean(e**2) - np.mean(e) ** 2),
        "half": np.sqrt(np.mean(e**2) - 0.5 * np.mean(e) ** 2),
        "unbiased": 100 * np.std(e, ddof=1),
        "log10": np.sqrt(np.mean(tens**2) - np.mean(tens) ** 2),
    }
    found = METRIC_SETS["silog"].compute(seen(list(p), list(d)))
    assert found == pytest.approx({f"silog_{form}": value for form, value in published.items()})
    for form, value in published.items():
        assert depth_metrics(p, d, silog=form)["silog"] == pytest.approx(value)


def test_the_area_under_the_deltas_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    d = rng.uniform(1, 9, 300)
    p = d * np.exp(rng.normal(0, 0.3, 300))
    exponents = np.linspace(0.01, 5, 100)
    shares = [np.mean(np.maximum(p / d, d / p) < 1.25**k) for k in exponents]
    area = sum((a + b) / 2 for a, b in pairwise(shares)) * (exponents[1] - exponents[0]) / 5
    found = METRIC_SETS["curve"].compute(seen(list(p), list(d)))
    assert found["d_auc"] == pytest.approx(area)
    assert found["within_3"] == np.mean(np.maximum(p / d, d / p) < 1.03)


def test_rows_by_distance_are_those_of_the_pixels_there() -> None:
    found = METRIC_SETS["distance"].compute(seen([1.5, 1.0, 6.0], [1.2, 1.6, 5.0]))
    assert found["abs_rel@1-2m"] == pytest.approx((0.25 + 0.375) / 2) and found["abs_rel@5-10m"] == pytest.approx(0.2)
    assert found["d1@5-10m"] == 1 and found["d1@1-2m"] == 0 and not any("@0-1m" in name for name in found)


def test_boundaries_of_a_step_are_found_where_they_are() -> None:
    truth = np.ones((20, 20))
    truth[:, 10:] = 2
    valid = np.ones(truth.shape, bool)
    assert boundary_moge(truth, truth, valid, 2) == pytest.approx(1)
    # No horizontal boundary is there or predicted: two of Depth Pro's four directions find nothing and score 0 of 1.
    assert boundary_depth_pro(truth, truth, valid) == pytest.approx(0.25)
    shifted = np.roll(truth, 1, axis=1)
    assert boundary_depth_pro(shifted, truth, valid) < 0.2 and boundary_depth_pro(np.ones((20, 20)), truth, valid) == 0


def test_the_boundary_f1_of_a_frame_smaller_than_its_neighbourhood_is_left_out() -> None:
    truth = np.arange(1.0, 26.0).reshape(5, 5)
    found = METRIC_SETS["boundary"].compute(replace(seen([1], [1]), frame=truth, gt=truth, counted=truth > 0))
    assert found.keys() == {"boundary_depth_pro", "boundary_moge_1", "boundary_moge_2"}
    assert math.isnan(boundary_moge(truth, truth, truth > 0, 3))


@pytest.mark.parametrize("outside", [1e6, 0])
def test_boundaries_are_only_sought_between_pixels_with_truth(outside: float) -> None:
    truth = np.ones((20, 20))
    truth[5, 5], valid = outside, np.ones((20, 20), bool)
    valid[5, 5] = False
    assert boundary_depth_pro(truth, truth, valid) == 0 == boundary_moge(truth, truth, valid, 1)


def test_a_cloud_shifted_by_ten_centimetres_is_within_25_and_not_within_5() -> None:
    truth, valid = np.full((24, 32), 2.0), np.ones((24, 32), bool)
    found = point_metrics(truth + 0.1, truth, valid, CAMERA, furthest=10.0)
    assert found["f_score_25cm"] == 1 and found["f_score_5cm"] == 0
    assert found["chamfer"] == pytest.approx(0.1, rel=0.05)


def test_a_cloud_needs_a_camera_and_the_protocol_hands_on_the_one_of_its_region() -> None:
    truth = np.full((480, 640), 2, np.float32)
    with pytest.raises(DataError, match="intrinsics"):
        PROTOCOLS["nyu_eigen"].score(truth, truth, truth > 0, metrics=("points",))
    found = PROTOCOLS["nyu_eigen"].score(truth, truth, truth > 0, CAMERA, metrics=("points",))
    assert found["f_score_5cm"] == 1 and found["chamfer"] == 0


def test_large_clouds_cells_and_columns_are_thinned_evenly() -> None:
    rows, columns = subsample(np.ones((480, 640), bool))
    assert rows.size * columns.size == 240 * 320 and rows[0] == 1 and rows[-1] == 479
    # In 640 x 640 cells are 10 x 10; of two pixels of one cell the one at (4, 5) is nearer to (5, 5).
    valid = np.zeros((640, 640), bool)
    valid[4, 5] = valid[1, 1] = valid[630, 639] = True
    assert grid_of_64(valid).tolist() == [4 * 640 + 5, 630 * 640 + 639]
    assert grid_of_64(np.ones((128, 256), bool)).size == 64 * 64 and grid_of_64(np.ones((20, 30), bool)).size == 600
    assert columns_to_1024(np.ones((8, 1000), bool)).size == 8000
    assert columns_to_1024(np.ones((8, 2048), bool)).tolist()[:3] == [0, 2, 4]


def test_sets_give_what_they_say() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 9, (24, 32)).astype(np.float32)
    prediction = (truth * rng.uniform(0.8, 1.25, truth.shape)).astype(np.float32)
    for name, metrics in METRIC_SETS.items():
        uncertainty = {"uncertainty": np.full_like(truth, 0.1)} if name == "uncertainty" else {}
        found = PROTOCOLS["plain"].score(prediction, truth, truth > 0, CAMERA, metrics=(name,), **uncertainty)
        assert metrics.formulae.keys() <= {metric.partition("@")[0] for metric in found}
        assert all(formula(metric) for metric in found if metric not in COUNTS)
    with pytest.raises(ConfigError, match="Did you mean 'boundary'"):
        find_sets(["boundry"])


def test_what_is_better_larger() -> None:
    better = {"max": ("d1", "d1@1-2m", "boundary_moge_2", "f_auc", "aurg_rmse", "within_3"), None: ("coverage@1-2m",)}
    better["min"] = ("rmse", "abs_rel@1-2m", "chamfer", "median_log", "silog_half", "ause_d1")
    for direction, names in better.items():
        assert {find_metric("depth", name).better for name in names} == {direction}


def test_a_set_of_a_plugin_is_computed_and_compared_by_its_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("densevit.evaluation.depth.metrics.METRIC_SETS", dict(METRIC_SETS))
    monkeypatch.setitem(METRICS, "depth", dict(METRICS["depth"]))
    page = (Path(__file__).parents[3] / "docs/plugins.md").read_text()
    (code,) = re.findall(r"```python\n(import numpy.*?)```", page, re.DOTALL)
    exec(code.replace("formulae={", 'larger=("best",), formulae={"best": "-", '), {})
    assert find_metric("depth", "p95").better == "min" and find_metric("depth", "best").better == "max"
    assert find_sets(["tail"]) == ["tail"] and "95th percentile" in formula("p95")
    with pytest.raises(ConfigError, match="'tail': abs_rel is densevit's"):
        exec(code.replace("p95", "abs_rel"), {})


def test_the_uncertainty_of_metres_stays_relative_under_an_alignment() -> None:
    """One that changes nothing: predictions whose median is that of the truth."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 9, (24, 32)).astype(np.float32)
    prediction = truth * rng.uniform(0.7, 1.4, truth.shape).astype(np.float32)
    prediction *= np.median(truth) / np.median(prediction)
    scale = rng.uniform(0.05, 0.2, truth.shape).astype(np.float32)
    plain = PROTOCOLS["plain"]
    one, other = (
        protocol.score(prediction, truth, truth > 0, uncertainty=scale, metrics=("uncertainty",))
        for protocol in (plain, plain.aligned("median"))
    )
    assert one["coverage"] < 1 and other == pytest.approx(one, rel=1e-4)


def test_the_uncertainty_of_disparity_is_a_share_of_its_deviation_under_an_alignment_of_depth() -> None:
    """Disparity q with scale b is depth 1 / q with the relative scale b mean|q - median q| / q."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 9, (24, 32)).astype(np.float32)
    disparity = 1 / (truth * rng.uniform(0.7, 1.4, truth.shape).astype(np.float32))
    scale = rng.uniform(0.05, 0.2, truth.shape).astype(np.float32)
    deviation = np.abs(disparity - np.median(disparity)).mean()
    metres = 1 / disparity, truth, truth > 0, None, scale * deviation / disparity
    aligned = PROTOCOLS["plain"].aligned("median")
    expected = aligned.score(*metres, metrics=("uncertainty",))
    inverted = aligned.for_kind("disparity")
    found = inverted.score(disparity, truth, truth > 0, None, scale, kind="disparity", metrics=("uncertainty",))
    assert found == pytest.approx(expected, rel=1e-3)
