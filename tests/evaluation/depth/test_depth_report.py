"""What is kept of an evaluation: complete, readable by machines, whole or not there; and a wrong unit is named."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.protocol import COUNTS
from densevit.evaluation.depth.protocol_text import describe
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import DepthScores, Maps, evaluate, unit_warning


@pytest.fixture
def found() -> DepthScores:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 9, (3, 6, 8)).astype(np.float32)
    predictions = (truth * rng.uniform(0.8, 1.3, truth.shape)).astype(np.float32)
    predictions[1, 0, :2] = np.nan
    valid = np.ones(truth.shape, bool)
    valid[2] = False
    return evaluate(zip(["a", "b,c", "d"], predictions, truth, valid, strict=True), PROTOCOLS["plain"])


def test_the_json_holds_protocol_counts_means_and_versions(tmp_path: Path, found: DepthScores) -> None:
    metrics, _ = found.write(tmp_path / "new" / "folder", source={"checkpoint": "runs/nyu"})
    kept = json.loads(metrics.read_text())
    assert kept["metrics"] == found.mean
    assert kept["counts"]["invalid_predictions"] == 2 and kept["skipped"] == ["d"]
    assert kept["protocol"]["name"] == "plain" and "whole frame" in kept["protocol"]["description"]
    assert kept["source"] == {"checkpoint": "runs/nyu"}
    assert set(kept["versions"]) == {"densevit", "python", "torch", "numpy"}


def test_the_csv_has_a_line_for_every_image_in_full_precision(tmp_path: Path, found: DepthScores) -> None:
    _, images = found.write(tmp_path)
    first, second, skipped = csv.DictReader(images.read_text().splitlines())
    assert tuple(first) == ("name", *METRICS, *COUNTS)
    assert second["name"] == "b,c"
    for line, (_, row) in zip((first, second), found.rows, strict=True):
        assert {column: float(line[column]) for column in row} == row
    assert skipped["name"] == "d" and set(skipped.values()) == {"d", ""}


def test_the_table_tells_protocol_means_and_what_was_left_out(found: DepthScores) -> None:
    text = found.table()
    assert describe(found.protocol) in text and f"{found.mean['abs_rel']:.4f}" in text
    assert found.summary_sentence() in text
    assert found.summary_sentence() == (
        "2 of 3 images scored, 96 pixels; 1 without ground truth that counts; 2 invalid predictions in 1 images; "
        "no confidence intervals, which need at least 6 images."
    )


def pairs(factor: float = 1.0, inverse: bool = False, noise: float = 0.2) -> list[Maps]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(3):
        depth = rng.uniform(0.8, 9, (24, 32)).astype(np.float32)
        prediction = depth * np.exp(rng.normal(0, noise, depth.shape))
        valid = rng.random(depth.shape) > 0.3
        found.append(((factor / prediction if inverse else factor * prediction).astype(np.float32), depth, valid))
    return found


@pytest.mark.parametrize(
    ("factor", "scale", "advice"),
    [
        (1000, None, "1000 units per metre. Use --scale 1000."),
        (256, None, "--scale 256."),
        (5000, None, "--scale 5000."),
        (100, None, "--scale 100."),
        (1 / 1000, None, "units of 1000 m. Use --scale 0.001."),
        (256 / 1000, 1000, "--scale 256."),  # KITTI's files read as millimetres
        (1000 / 256, 256, "--scale 1000."),
        (9, None, "--align median; if up to a factor and a shift, --prediction-type affine."),
    ],
)
def test_a_wrong_unit_is_named_with_its_remedy(factor: float, scale: float | None, advice: str) -> None:
    warning = unit_warning(pairs(factor), scale)
    assert advice in warning and "the median prediction is" in warning


def test_inverse_depth_is_told_by_its_order_and_a_poor_model_is_no_reason_to_warn() -> None:
    for factor in (1, 4, 5000):
        warning = unit_warning(pairs(factor, inverse=True))
        assert "inverse depth" in warning and "--prediction-type disparity" in warning
    depth = np.ones((4, 5), np.float32)
    nothing = [(np.zeros((4, 5), np.float32), depth, depth > 0)]  # no common pixel
    for quiet in (*(pairs(factor, noise=0.5) for factor in (0.6, 1, 1.7)), nothing, [(depth, depth, depth > 0)]):
        assert unit_warning(quiet) == ""
