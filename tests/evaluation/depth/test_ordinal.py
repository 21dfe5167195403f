"""Pairs of points: read as DA-2K writes them, counted by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shell import Shell

from densevit.errors import DataError
from densevit.evaluation.depth.ordinal import Pair, ordered, ordinal_scores, read_pairs

DEPTH = np.arange(12, dtype=np.float32).reshape(3, 4)  # farther to the bottom right


def test_pairs_are_read_and_counted(tmp_path: Path) -> None:
    entries = [
        {"point1": [0, 0], "point2": [2, 3], "closer_point": "point1"},
        {"point1": [0, 1], "point2": [0, 0], "closer_point": "point1"},
        {"point1": [1, 0], "point2": [1, 1], "closer_point": "point1"},
    ]
    (tmp_path / "annotations.json").write_text(json.dumps({"a.jpg": entries, "b.jpg": entries[:1]}))
    pairs = read_pairs(tmp_path / "annotations.json")
    assert pairs["b.jpg"] == [Pair((0, 0), (2, 3))]
    scores = ordinal_scores(pairs, lambda _: DEPTH, disparity=False)
    assert scores.images == {"a.jpg": (pytest.approx(2 / 3), 3), "b.jpg": (1.0, 1)}
    assert scores.accuracy == pytest.approx(3 / 4) and scores.groups == {".": (pytest.approx(3 / 4), 4)}
    assert scores.interval is None  # of two images
    assert ordinal_scores(pairs, lambda _: 1 / (1 + DEPTH), disparity=True).accuracy == pytest.approx(3 / 4)


def test_equal_predictions_are_no_answer() -> None:
    assert not ordered(np.ones((3, 4), np.float32), [Pair((0, 0), (2, 3))], disparity=False).any()
    assert not ordered(np.full((3, 4), np.nan, np.float32), [Pair((0, 0), (2, 3))], disparity=True).any()


def test_points_outside_and_other_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a.jpg: a point at row 3, column 0 of a 3x4"):
        ordinal_scores({"a.jpg": [Pair((3, 0), (0, 0))]}, lambda _: DEPTH, disparity=False)
    (tmp_path / "x.json").write_text('{"a.jpg": [{"point1": [0, 0]}]}')
    with pytest.raises(DataError, match="no list of pairs"):
        read_pairs(tmp_path / "x.json")


def test_saved_maps_are_scored_from_the_command_line_at_the_size_of_their_images(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "images/indoor").mkdir(parents=True)
    (tmp_path / "maps/images/indoor").mkdir(parents=True)
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(tmp_path / "images/indoor/a.jpg")
    disparity = np.tile(np.linspace(9, 1, 10, dtype=np.float32), (5, 1))  # nearer to the left, a quarter of the size
    np.save(tmp_path / "maps/images/indoor/a.npy", disparity)
    entry = {"point1": [10, 30], "point2": [10, 5], "closer_point": "point2"}
    wrong = {"point1": [10, 30], "point2": [10, 5], "closer_point": "point1"}
    (tmp_path / "annotations.json").write_text(json.dumps({"images/indoor/a.jpg": [entry, entry, entry, wrong]}))
    command = ["eval", "--pairs", tmp_path / "annotations.json", "--predictions", tmp_path / "maps"]
    told = shell(*command, "--prediction-type", "disparity", "--output", tmp_path / "scores").out
    assert "0.7500 of 4 pairs in 1 images" in told
    assert json.loads((tmp_path / "scores/metrics.json").read_text())["images"] == {"images/indoor/a.jpg": [0.75, 4]}
    assert "0.2500 of 4 pairs" in shell(*command, "--prediction-type", "affine").out
    np.save(tmp_path / "maps/images/indoor/a.npy", np.where(disparity > 7, 0, 1 / disparity))  # 0 m: no prediction
    assert "0.0000 of 4 pairs" in shell(*command).out
