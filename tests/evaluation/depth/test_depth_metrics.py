"""The nine metrics, against hand calculation and the two-pass definition in exact arithmetic."""

import math

import numpy as np
import pytest

from densevit.evaluation.depth.metrics import FORMULAE, METRICS, depth_metrics


def test_the_metrics_of_three_pixels_by_hand() -> None:
    """Truth 1 2 4, prediction 1.5 2 2: errors .5 0 -2, ratios 1.5 1 2, logs ln1.5 0 -ln2."""
    found = depth_metrics(np.array([1.5, 2.0, 2.0]), np.array([1.0, 2.0, 4.0]))
    a, b = math.log(1.5), math.log(2)
    mean = (a - b) / 3
    expected = {
        "abs_rel": (0.5 + 0 + 0.5) / 3,
        "sq_rel": (0.25 + 0 + 1.0) / 3,
        "rmse": math.sqrt((0.25 + 4) / 3),
        "rmse_log": math.sqrt((a * a + b * b) / 3),
        "log10": (math.log10(1.5) + math.log10(2)) / 3,
        "silog": 100 * math.sqrt(((a - mean) ** 2 + mean**2 + (b + mean) ** 2) / 3),
        "d1": 1 / 3,
        "d2": 2 / 3,  # 1.5 < 1.5625
        "d3": 2 / 3,  # 2 > 1.953125
    }
    assert tuple(found) == METRICS == tuple(FORMULAE)
    assert found == pytest.approx(expected, rel=1e-12)


def test_deltas_are_strict_a_perfect_pixel_scores_perfectly_and_metrics_are_plain_floats() -> None:
    assert depth_metrics(np.array([1.25]), np.array([1.0]))["d1"] == 0
    assert depth_metrics(np.array([1.0]), np.array([1.25]))["d1"] == 0
    found = depth_metrics(np.array([3.0]), np.array([3.0]))
    assert [found[name] for name in METRICS] == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert {type(value) for value in found.values()} == {float}


def test_silog_of_nearly_constant_ratios_is_never_negative_nor_nan() -> None:
    """300 of 300; the two moments in float32 are negative for about a quarter of these."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        depth = rng.uniform(0.5, 10, 2000)
        found = depth_metrics(depth * rng.uniform(0.5, 2) * (1 + 1e-9 * rng.normal(size=2000)), depth)
        assert 0 <= found["silog"] < 1e-5
