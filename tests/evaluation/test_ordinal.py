"""Pairs of points: read as DA-2K writes them, counted by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from densevit.errors import DataError
from densevit.evaluation.ordinal import Pair, ordinal_accuracy, pair_accuracy, read_pairs

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
    accuracy, images = ordinal_accuracy(pairs, lambda _: DEPTH, disparity=False)
    assert images == {"a.jpg": pytest.approx(2 / 3), "b.jpg": 1.0} and accuracy == pytest.approx(3 / 4)
    assert ordinal_accuracy(pairs, lambda _: 1 / (1 + DEPTH), disparity=True)[0] == pytest.approx(3 / 4)


def test_equal_predictions_are_no_answer() -> None:
    assert pair_accuracy(np.ones((3, 4), np.float32), [Pair((0, 0), (2, 3))], disparity=False) == 0


def test_points_outside_and_other_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 3, column 0 of a 3x4"):
        pair_accuracy(DEPTH, [Pair((3, 0), (0, 0))], disparity=False)
    (tmp_path / "x.json").write_text('{"a.jpg": [{"point1": [0, 0]}]}')
    with pytest.raises(DataError, match="no list of pairs"):
        read_pairs(tmp_path / "x.json")
