"""Queries merged into segments, by hand on a few pixels, and the metres of objects before a pinhole camera."""

import numpy as np
import pytest
import torch
from torch import Tensor

from densevit.ops.segments import ObjectDepth, measure, merge_panoptic, select_instances

NONE = 3  # classes: 0 a thing, 1 and 2 stuff


def logit(shares: object) -> Tensor:
    return torch.as_tensor(shares, dtype=torch.float64).clamp(1e-6, 1 - 1e-6).logit()


def sure_of(*pairs: tuple[int, float]) -> Tensor:
    """Logits of queries: (class, probability); the rest is spread evenly over the other kinds."""
    rows = [[p if kind == label else (1 - p) / NONE for kind in range(NONE + 1)] for label, p in pairs]
    return torch.tensor(rows).log()


def test_each_pixel_goes_to_the_query_of_the_highest_score_times_mask() -> None:
    # Pixel 1: 0.9 x 0.9 = 0.81 against 0.99 x 0.8 = 0.79, so the first; pixel 3 is outside of both masks.
    masks = logit([[[0.9, 0.9, 0.1, 0.1]], [[0.1, 0.8, 0.9, 0.4]]])[:, :, [0, 1, 2, 2, 3]]
    found = merge_panoptic(masks, sure_of((0, 0.9), (0, 0.99)), [0], overlap=0.6)
    assert found.segments.tolist() == [[1, 1, 2, 2, 0]]
    assert found.classes.tolist() == [0, 0] and found.is_thing.tolist() == [True, True]
    np.testing.assert_allclose(found.scores, [0.9, 0.99], atol=1e-6)


def test_a_query_that_others_mostly_cover_leaves_void() -> None:
    # Of the second query's 5 pixels the first takes 2: 3 / 5 is under 0.8, and its 3 pixels are void.
    masks = logit([[[0.9, 0.9, 0.9, 0.1, 0.1, 0.1]], [[0.1, 0.8, 0.8, 0.9, 0.9, 0.9]]])
    found = merge_panoptic(masks, sure_of((0, 0.95), (1, 0.9)), [0])
    assert found.segments.tolist() == [[1, 1, 1, 0, 0, 0]]
    kept = merge_panoptic(masks, sure_of((0, 0.95), (1, 0.9)), [0], overlap=0.6)
    assert kept.segments.tolist() == [[1, 1, 1, 2, 2, 2]] and kept.is_thing.tolist() == [True, False]


def test_stuff_of_one_class_is_one_segment_and_things_are_several() -> None:
    masks = logit(0.9 * np.eye(4)[:, None])
    found = merge_panoptic(masks, sure_of((1, 0.85), (0, 0.9), (1, 0.95), (0, 0.9)), [0])
    assert found.segments.tolist() == [[1, 2, 1, 3]] and found.classes.tolist() == [1, 0, 0]
    np.testing.assert_allclose(found.scores, [0.95, 0.9, 0.9], atol=1e-6)


def test_queries_that_are_not_sure_and_no_object_do_not_count() -> None:
    masks = logit(0.9 * np.eye(3)[:, None])
    classes = sure_of((0, 0.79), (NONE, 0.99), (2, 0.81))
    assert merge_panoptic(masks, classes, [0]).segments.tolist() == [[0, 0, 1]]
    empty = merge_panoptic(masks, classes, [0], threshold=0.99)
    assert empty.segments.tolist() == [[0, 0, 0]] and empty.segments.dtype == np.int32 and not len(empty.classes)


def test_instances_are_the_likeliest_pairs_of_query_and_class() -> None:
    # Scores: class 0.6 and 0.3 of the first query, 0.5 of the second; masks 0.9 and (0.8 + 0.6) / 2 inside.
    masks = logit([[[0.9, 0.9, 0.2]], [[0.4, 0.8, 0.6]], [[0.1, 0.1, 0.1]]])
    classes = torch.tensor([[0.6, 0.3, 0.05, 0.05], [0.05, 0.05, 0.5, 0.4], [0.9, 0.05, 0.02, 0.03]]).log()
    found = select_instances(masks, classes, top=4)  # the last query has the highest score, and an empty mask
    assert found.classes.tolist() == [0, 2, 1]
    np.testing.assert_allclose(found.scores, [0.54, 0.35, 0.27], atol=1e-5)
    assert found.masks.tolist() == [[[True, True, False]], [[False, True, True]], [[True, True, False]]]
    assert len(select_instances(masks, classes, top=2).classes) == 1


CAMERA = np.array([[100.0, 0, 16], [0, 50.0, 12], [0, 0, 1]])


def test_an_object_has_the_median_of_its_depth_and_the_size_of_its_box_there() -> None:
    mask, depth = np.zeros((24, 32), np.bool_), np.full((24, 32), 9.0)
    mask[4:9, 10:20] = True
    depth[mask], depth[4, 10], depth[5, 10] = 2.0, np.nan, 0.0
    depth[8, 10:14] = 7.0  # four pixels that see past it
    found = measure(mask, depth, np.full((24, 32), np.log(1.25)), CAMERA)
    assert found == pytest.approx((2.0, 1.6, 2.5, 10 * 2.0 / 100, 5 * 2.0 / 50))
    assert measure(mask, depth)[1:] == (None,) * 4


def test_an_object_without_depth_has_no_metres() -> None:
    assert measure(np.ones((2, 2), np.bool_), np.zeros((2, 2)), None, CAMERA) == ObjectDepth()


def test_around_a_window_of_the_image_there_is_void_and_inside_what_the_window_gives() -> None:
    masks = torch.full((2, 10, 10), -5.0)
    masks[0, :, :5], masks[1, :, 1:] = 1.0, 5.0  # four fifths of the first are under the second, which is surer
    classes = torch.tensor([[9.0, 0, 0], [0, 9.0, 0]])
    around = torch.nn.functional.pad(masks, (4, 4, 4, 4), value=float("nan"))
    alone, found = (merge_panoptic(one, classes, (0, 1)) for one in (masks, around))
    assert alone.classes.tolist() == found.classes.tolist() == [1]
    np.testing.assert_array_equal(found.segments, np.pad(alone.segments, 4))
