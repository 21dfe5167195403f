"""Metres of objects: a box of known pixels before a pinhole camera."""

import numpy as np
import pytest

from densevit.ops.segments.measure import Measured, measure

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
    assert measure(np.ones((2, 2), np.bool_), np.zeros((2, 2)), None, CAMERA) == Measured()
