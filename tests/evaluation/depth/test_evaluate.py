"""From a stream to a mean: nothing lost in silence, nothing weighed twice; holes filled as KITTI's kit does."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from densevit.errors import DataError
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.preprocess import fill_background
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import Item, evaluate, summarise
from densevit.scorers.baselines import median_depth_map

PLAIN = PROTOCOLS["plain"]


def walls(*factors: float) -> Iterator[Item]:
    """Truth of 2 m, predicted at so many times that."""
    for i, factor in enumerate(factors):
        truth = np.full((4, 5), 2, np.float32)
        yield f"wall {i}", truth * np.float32(factor), truth, np.ones((4, 5), bool)


def test_the_mean_is_over_images_not_over_pixels() -> None:
    one, other = walls(1.5, 2.0)
    other[3][:, 1:] = False  # 4 pixels against 20
    found = evaluate([one, other], PLAIN)
    assert found.mean["abs_rel"] == 0.75 and found.counts["pixels"] == 24
    assert tuple(found.mean) == METRICS


def test_images_without_truth_are_named_and_weigh_nothing() -> None:
    items = list(walls(1.5, 3.0, 1.5))
    items[1][3][:] = False
    found = evaluate(items, PLAIN)
    assert found.skipped == ["wall 1"] and found.mean["abs_rel"] == 0.5
    assert [name for name, _ in found.rows] == ["wall 0", "wall 2"]
    assert (found.counts["images"], found.counts["scored"], found.counts["skipped"]) == (3, 2, 1)


def test_invalid_and_resized_predictions_are_counted() -> None:
    items = list(walls(1.0, 1.0))
    items[0][1][0, :3] = np.nan
    items[1] = (items[1][0], np.full((8, 10), 2, np.float32), *items[1][2:])
    counts = evaluate(items, PLAIN).counts
    assert (counts["invalid_predictions"], counts["images_with_invalid_predictions"]) == (3, 1)
    assert counts["resized_predictions"] == 1


def test_rows_gathered_from_two_processes_in_any_order_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    whole = evaluate(walls(*rng.uniform(0.5, 2, 50)), PLAIN)
    halves = (itertools.islice(whole.rows, start, None, 2) for start in (1, 0))
    assert summarise(itertools.chain(*halves), PLAIN).mean == whole.mean


def test_duplicates_faults_and_nothing_to_score_are_told_with_the_name_of_the_image() -> None:
    _, truth, _, valid = item = next(walls(1.0))
    nyu = PROTOCOLS["nyu_eigen"]
    for items, protocol, told in (
        ([item, item], PLAIN, r"wall 0.*twice"),
        ([("kitchen/7", truth, truth, valid)], nyu, r"^kitchen/7: .*480x640"),
        ([], PLAIN, "none of 0 images"),
    ):
        with pytest.raises(DataError, match=told):
            evaluate(items, protocol)


def test_items_are_taken_one_at_a_time() -> None:
    alive: list[int] = []

    def stream() -> Iterator[Item]:
        for item in walls(1.0, 1.1, 1.2):
            alive.append(len(alive))
            yield item

    found = evaluate(stream(), PLAIN)
    assert len(alive) == found.counts["images"] == 3
    assert not any(isinstance(value, np.ndarray) for _, row in found.rows for value in row.values())


def test_examples_are_best_median_and_worst() -> None:
    assert evaluate(walls(1.5, 1.1, 1.9), PLAIN).examples() == {"best": "wall 1", "median": "wall 0", "worst": "wall 2"}


def test_the_constant_map_is_the_median_of_what_was_measured() -> None:
    depths = [np.full((3, 2), value, np.float32) for value in (1, 2, 4, 9)]
    valids = [np.ones((3, 2), bool) for _ in depths]
    for valid in valids:
        valid[0, 0] = False  # never measured
    valids[0][1, 1] = False  # of 2 4 9
    found = median_depth_map(depths, valids)
    # Even counts take the middle of two, (2 + 4) / 2; the unmeasured pixel takes the map's median, also 3.
    np.testing.assert_array_equal(found, [[3, 3], [3, 4], [3, 3]])


def test_the_constant_map_is_the_same_over_strips_of_any_height_and_needs_maps_of_one_size() -> None:
    rng = np.random.default_rng(0)
    depths = rng.uniform(1, 9, (5, 70, 3)).astype(np.float32)
    np.testing.assert_allclose(median_depth_map(depths, depths > 0), np.median(depths, axis=0))
    for wrong, told in (
        ([], "none"),
        ([np.ones((2, 2)), np.ones((2, 3))], "one size"),
        ([np.zeros((2, 2))], "measured"),
    ):
        with pytest.raises(DataError, match=told):
            median_depth_map(wrong, [depth > 0 for depth in wrong])


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
