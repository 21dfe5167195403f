"""Holes of a prediction as KITTI's development kit fills them; answers by hand."""

import numpy as np

from densevit.evaluation.depth.preprocess import fill_background
from densevit.evaluation.depth.published_protocols import PROTOCOLS


def filled(*rows: list[float]) -> list[list[float]]:
    return fill_background(np.array(rows, np.float32)).tolist()


def test_holes_take_the_nearer_of_their_ends_and_borders_the_outermost_values() -> None:
    assert filled([5, 0, 0, 3, 0, 9]) == [[5, 3, 3, 3, 3, 9]]
    assert filled([0, 0, 4, 7, 0]) == [[4, 4, 4, 7, 7]]
    # Rows without values take those next to them at the top and at the bottom only.
    assert filled([0, 0], [2, 3], [0, 0], [5, 6], [0, 0]) == [[2, 3], [2, 3], [0, 0], [5, 6], [5, 6]]
    assert filled([1, np.nan, np.inf, 2]) == [[1, 1, 1, 2]]
    assert filled([0, 0]) == [[0, 0]]


def test_the_benchmark_scores_what_was_filled_and_counts_no_hole() -> None:
    truth = np.full((352, 1216), 4.0, np.float32)
    prediction = np.full((352, 1216), 5.0, np.float32)
    prediction[100:200, 300:400] = 0
    row = PROTOCOLS["kitti_benchmark"].score(prediction, truth, truth > 0)
    assert row["rmse"] == 1 and row["invalid_predictions"] == 0
