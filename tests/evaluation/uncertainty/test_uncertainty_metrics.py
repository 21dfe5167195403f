"""Coverage, sparsification and conformal intervals on errors whose distribution is known."""

import numpy as np
import pytest

from densevit.depth_corrections import Interval
from densevit.errors import DataError
from densevit.evaluation.depth.metrics import DISTANCES
from densevit.evaluation.uncertainty import fit_interval, image_scores, uncertainty_metrics
from densevit.ops.calibration import area, confidence, sparsification, widths


def drawn(n: int, seed: int = 0, bias: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prediction, depth and a scale that is `bias` times too small, of Laplace errors that grow with distance."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(1, 9, n)
    b = 0.01 * p * rng.uniform(0.5, 2, n)
    return p, p * np.exp(rng.laplace(0, b)), b / bias


def test_sparsification_by_hand() -> None:
    errors = np.arange(100, dtype=np.float64)
    curve = sparsification(errors, errors)
    assert curve[0] == pytest.approx(49.5) and curve[25] == pytest.approx(24.5) and curve[49] == pytest.approx(0.5)
    assert curve[50] == 0 and len(curve) == 51
    assert area(curve) == pytest.approx(((curve[1:] + curve[:-1]) / 2).sum() / 50)
    # The errors taken out from the wrong end rise instead.
    assert sparsification(errors, -errors)[49] == pytest.approx(98.5)


def test_a_perfect_ranking_has_no_ause_and_a_constant_one_no_aurg() -> None:
    p, d, _ = drawn(4000)
    perfect = uncertainty_metrics(p, d, np.abs(p - d) / d + 1e-9, None, DISTANCES)
    assert perfect["ause_abs_rel"] == pytest.approx(0, abs=1e-9)
    assert perfect["aurg_abs_rel"] == pytest.approx(perfect["ause_abs_rel_random"], rel=1e-6)
    constant = uncertainty_metrics(p, d, np.full_like(p, 0.1), None, DISTANCES)
    assert abs(constant["aurg_abs_rel"]) < 0.05 * constant["ause_abs_rel"]
    assert constant["ause_abs_rel"] == pytest.approx(constant["ause_abs_rel_random"], rel=0.05)


def test_the_right_scale_covers_what_laplace_says_and_a_wrong_one_less() -> None:
    right, wrong = (uncertainty_metrics(*drawn(20000, bias=bias), None, DISTANCES) for bias in (1.0, 3.0))
    assert right["coverage"] == pytest.approx(0.9, abs=0.01)
    assert right["coverage@3-5m"] == pytest.approx(0.9, abs=0.02)
    assert wrong["coverage"] == pytest.approx(1 - 0.1 ** (1 / 3), abs=0.01)  # 1 - exp(-ln 10 / 3)


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_calibrated_intervals_cover_new_images_at_every_distance(level: float) -> None:
    interval = fit_interval((image_scores(*drawn(500, seed, bias=3.0)) for seed in range(40)), level, "made")
    assert interval.images == 40 and len(interval.depths) == len(interval.factors) == 8
    row = uncertainty_metrics(*drawn(40000, 999, bias=3.0), interval, DISTANCES)
    asked = level * 41 / 40  # the correction for 40 images
    assert row["coverage"] == pytest.approx(asked, abs=0.01)
    for near, far in ((1, 2), (2, 3), (3, 5), (5, 10)):
        assert row[f"coverage@{near}-{far}m"] == pytest.approx(asked, abs=0.05)
        assert row[f"coverage_predicted@{near}-{far}m"] == pytest.approx(asked, abs=0.03)


def test_coverage_by_predicted_and_by_true_distance() -> None:
    prediction, depth = np.array([1.5, 1.5, 2.5, 2.5]), np.array([1.5, 2.5, 2.5, 2.5])
    row = uncertainty_metrics(prediction, depth, np.full(4, 0.1), None, (1, 2, 3))  # ln 2.5 - ln 1.5 is over 0.23
    assert row["coverage"] == 0.75
    assert row["coverage@1-2m"] == 1 and row["coverage@2-3m"] == pytest.approx(2 / 3)
    assert row["coverage_predicted@1-2m"] == 0.5 and row["coverage_predicted@2-3m"] == 1


def test_too_few_images_are_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(DataError, match="8 images with true depth: intervals of 90% need 9 or more"):
        fit_interval((image_scores(*drawn(50, seed)) for seed in range(8)), 0.9, "made")


def test_few_images_are_a_warning_that_names_them() -> None:
    few, enough = (fit_interval((image_scores(*drawn(50, seed)) for seed in range(n)), 0.9, "made") for n in (29, 30))
    assert "90% were calibrated on 29 images" in few.warning() and not enough.warning()


def test_factors_are_interpolated_in_log_depth_and_held_beyond() -> None:
    interval = Interval(level=0.9, depths=(1.0, 4.0), factors=(2.0, 4.0), images=9, data="")
    found = widths(np.array([0.5, 1.0, 2.0, 4.0, 9.0]), np.full(5, 0.1), interval)
    np.testing.assert_allclose(found, [0.2, 0.2, 0.3, 0.4, 0.4])


def test_confidence_is_the_probability_of_the_delta() -> None:
    # b = ln 1.25: P(|e| < b) = 1 - exp(-1).
    np.testing.assert_allclose(confidence(np.array([np.log(1.25), 1e-9])), [1 - np.exp(-1), 1.0])
