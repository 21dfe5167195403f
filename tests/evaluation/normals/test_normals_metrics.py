"""Scores of normals on angles that are known by construction, and both ways of pooling."""

from dataclasses import replace

import numpy as np
import pytest
from toy_models import toy_predictor

from densevit.errors import ConfigError, DataError
from densevit.evaluation.normals import (
    PROTOCOLS,
    angular_errors,
    as_row,
    evaluate,
    find_protocol,
    pooled_scores,
    summarise,
)
from densevit.model_card import HeadSpec
from densevit.ops.geometry import pinhole
from densevit.ops.normals import normals_of_map
from densevit.scorers.normals import normals_of
from densevit.structures import Sample


def at(*degrees: float) -> np.ndarray:
    """One row of normals, turned so far from (0, 0, -1)."""
    angles = np.radians(degrees)
    return np.stack([np.sin(angles), 0 * angles, -np.cos(angles)], 1)[None].astype(np.float32)


def test_scores_by_hand() -> None:
    row = summarise(angular_errors(at(0, 4, 10, 20, 40), at(0, 0, 0, 0, 0)))
    assert row["mean"] == pytest.approx(14.8, abs=1e-4) and row["median"] == pytest.approx(10, abs=1e-4)
    assert row["rmse"] == pytest.approx((2116 / 5) ** 0.5, abs=1e-4)  # 0 + 16 + 100 + 400 + 1600
    shares = {"5": 40, "7.5": 40, "11.25": 60, "22.5": 80, "30": 80}
    assert {name: row[f"within_{name}"] for name in shares} == shares


def test_unknown_truth_does_not_count_and_a_missing_prediction_is_the_worst() -> None:
    truth, prediction = at(0, 0, 0), at(0, 0, 0)
    truth[0, 0], prediction[0, 1], prediction[0, 2] = 0, 0, np.nan
    np.testing.assert_array_equal(angular_errors(prediction, truth), [180, 180])
    assert as_row(prediction, np.zeros_like(truth)) == {}


def test_dsine_pools_pixels_and_marigold_averages_images() -> None:
    large, small = np.repeat(at(10), 9, axis=1), at(50)
    items = [("a", large, np.repeat(at(0), 9, axis=1)), ("b", small, at(0)), ("c", small, None)]
    pooled, averaged = (evaluate(iter(items), find_protocol(name)) for name in ("dsine", "marigold"))
    assert pooled.mean["mean"] == pytest.approx(14, abs=1e-4)  # (9 x 10 + 50) / 10
    assert pooled.mean["median"] == pytest.approx(10, abs=1e-3)
    assert pooled.mean["within_11.25"] == pytest.approx(90) and pooled.pixels == 10
    assert averaged.mean["mean"] == pytest.approx(30, abs=1e-4) and averaged.mean["within_11.25"] == pytest.approx(50)
    assert pooled.skipped == ["c"]
    validated = pooled_scores([as_row(prediction, truth) for _, prediction, truth in items if truth is not None])
    assert validated == pytest.approx(pooled.mean, abs=0.025)  # which is what a median of a validation is exact to
    assert validated["mean"] == pooled.mean["mean"] and validated["rmse"] == pooled.mean["rmse"]


def test_a_pooled_median_is_that_of_all_pixels() -> None:
    rng = np.random.default_rng(0)
    degrees = [rng.uniform(0, 90, 501), rng.uniform(20, 60, 302)]
    items = [(str(i), at(*d), np.repeat(at(0), len(d), axis=1)) for i, d in enumerate(degrees)]
    found = evaluate(iter(items), PROTOCOLS["dsine"]).mean
    assert found["median"] == pytest.approx(np.median(np.concatenate(degrees)), abs=1e-3)


def test_what_does_not_fit_is_said_with_the_image() -> None:
    with pytest.raises(DataError, match=r"a: the prediction is \(1, 1, 3\), the ground truth \(1, 2, 3\)"):
        evaluate([("a", at(0), at(0, 0))], PROTOCOLS["dsine"])
    with pytest.raises(DataError, match="none of 1 images"):
        evaluate([("a", at(0), None)], PROTOCOLS["dsine"])
    with pytest.raises(ConfigError, match="Did you mean"):
        find_protocol("dsin")


def test_normals_of_depth_take_the_camera_that_is_given_before_that_of_the_data() -> None:
    image = np.repeat(np.add.outer(4 * np.arange(12), 9 * np.arange(16)).astype(np.uint8)[..., None], 3, 2)
    found = normals_of(toy_predictor(camera=20.0), None)(
        Sample(name="a", image=image, intrinsics=pinhole(90, 90, 7, 5))
    )
    expected = normals_of_map(toy_predictor()(image), pinhole(20, 20, 7.5, 5.5))
    assert expected.any()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_named_head_that_gives_no_normals_is_refused_and_not_replaced_by_one_that_does() -> None:
    plain = toy_predictor()
    heads = {**plain.card.outputs, "far": HeadSpec(kind="disparity")}
    with pytest.raises(ConfigError, match="head 'far' gives disparity; .* metric depth, which 'depth' gives"):
        normals_of(plain.with_options(card=replace(plain.card, outputs=heads)), "far")
