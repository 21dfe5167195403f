"""Holes of a prediction as KITTI's development kit fills them; answers by hand."""

import numpy as np

from densevit.evaluation.depth.preprocess import fill_background
from densevit.evaluation.depth.published_protocols import PROTOCOLS


def filled(*rows: list[float]) -> list[list[float]]:
    return fill_background(np.array(rows, np.float32)).tolist()


def test_a_hole_in_a_row_takes_the_nearer_of_its_ends() -> None:
    assert filled([5, 0, 0, 3, 0, 9]) == [[5, 3, 3, 3, 3, 9]]


def test_the_ends_of_a_row_take_its_outermost_values() -> None:
    assert filled([0, 0, 4, 7, 0]) == [[4, 4, 4, 7, 7]]


def test_rows_without_values_take_those_next_to_them_at_the_top_and_at_the_bottom_only() -> None:
    assert filled([0, 0], [2, 3], [0, 0], [5, 6], [0, 0]) == [[2, 3], [2, 3], [0, 0], [5, 6], [5, 6]]


def test_nan_and_infinity_are_holes_and_a_map_of_nothing_else_stays() -> None:
    assert filled([1, np.nan, np.inf, 2]) == [[1, 1, 1, 2]]
    assert filled([0, 0]) == [[0, 0]]


def test_the_benchmark_scores_what_was_filled_and_counts_no_hole() -> None:
    truth = np.full((352, 1216), 4.0, np.float32)
    prediction = np.full((352, 1216), 5.0, np.float32)
    prediction[100:200, 300:400] = 0
    row = PROTOCOLS["kitti_benchmark"].score(prediction, truth, truth > 0)
    assert row["rmse"] == 1 and row["invalid_predictions"] == 0
