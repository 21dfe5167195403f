"""What is kept of an evaluation: complete, readable by machines, and whole or not there."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.protocol import COUNTS
from densevit.evaluation.depth.protocol_text import describe
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import DepthScores, evaluate


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
