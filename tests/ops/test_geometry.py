"""Cameras: numbers worked out by hand, or the property that a moved camera sees the same scene."""

import math

import numpy as np
import pytest

from densevit.ops.geometry import (
    backproject,
    field_of_view,
    focal_length,
    mirror,
    pinhole_from_fov,
    rotate,
    scale,
    shift,
    transform_intrinsics,
)

K = np.array([[500.0, 0.0, 300.0], [0.0, 510.0, 200.0], [0.0, 0.0, 1.0]])


def test_backproject_of_a_hand_computed_pixel() -> None:
    depth = np.full((240, 400), 2.0)
    points = backproject(depth, K)
    assert points[200, 300].tolist() == [0, 0, 2]  # the principal point looks straight ahead
    assert points[149, 350].tolist() == pytest.approx([50 / 500 * 2, -51 / 510 * 2, 2])


def test_backproject_keeps_the_type_of_depth() -> None:
    assert backproject(np.ones((2, 3), np.float32), K).dtype == np.float32


def test_backproject_inverts_projection_with_skew() -> None:
    skewed = K.copy()
    skewed[0, 1] = 7.0
    depth = np.random.default_rng(0).uniform(1, 5, (6, 8))
    projected = backproject(depth, skewed) @ skewed.T
    v, u = np.mgrid[:6, :8]
    assert np.allclose(projected[..., 0] / projected[..., 2], u)
    assert np.allclose(projected[..., 1] / projected[..., 2], v)


def test_a_crop_moves_the_principal_point() -> None:
    assert transform_intrinsics(K, shift(-40, -10)).tolist() == [[500, 0, 260], [0, 510, 190], [0, 0, 1]]


def test_a_mirror_keeps_focal_lengths_positive_and_mirrors_the_principal_point() -> None:
    # Width 640: pixel 300 becomes 639 - 300.
    assert transform_intrinsics(K, mirror(640)).tolist() == [[500, 0, 339], [0, 510, 200], [0, 0, 1]]


def test_doubling_the_size_moves_pixel_borders_onto_pixel_borders() -> None:
    # The first pixel [-0.5, 0.5] becomes the first two, [-0.5, 1.5], whose middle is 0.5; 300 -> 2 * 300.5 - 0.5.
    assert (scale(2, 2) @ [0, 0, 1]).tolist() == [0.5, 0.5, 1]
    assert transform_intrinsics(K, scale(2, 3)).tolist() == [[1000, 0, 600.5], [0, 1530, 601], [0, 0, 1]]


def test_a_quarter_turn_swaps_the_focal_lengths() -> None:
    # Counter-clockwise on a 101 x 101 picture: right goes up, so (u, v) -> (v, 100 - u).
    turned = transform_intrinsics(np.array([[500.0, 0, 30], [0, 510.0, 20], [0, 0, 1]]), rotate(90, (101, 101)))
    assert turned == pytest.approx(np.array([[510.0, 0, 20], [0, 500.0, 70], [0, 0, 1]]))


@pytest.mark.parametrize(
    "move", [rotate(20, (400, 600)), rotate(-3, (400, 600)) @ scale(1.3, 0.7), mirror(600) @ rotate(5, (400, 600))]
)
def test_what_a_moved_camera_loses_is_a_roll_about_its_axis(move: np.ndarray) -> None:
    moved = transform_intrinsics(K, move)
    roll = np.linalg.inv(moved) @ move @ K
    assert roll @ roll.T == pytest.approx(np.eye(3), abs=1e-12)
    assert roll[2].tolist() == pytest.approx([0, 0, 1])  # depth along the axis is untouched
    assert moved[0, 0] > 0 and moved[1, 1] > 0 and moved[1, 0] == 0


def test_square_pixels_stay_square_under_rotation() -> None:
    square = np.array([[500.0, 0.0, 300.0], [0.0, 500.0, 200.0], [0.0, 0.0, 1.0]])
    turned = transform_intrinsics(square, rotate(2.5, (480, 640)))
    assert turned[:2, :2] == pytest.approx(500 * np.eye(2), abs=1e-9)


def test_a_right_angle_of_view_has_a_focal_length_of_half_the_width() -> None:
    assert focal_length(640, 90) == pytest.approx(320)
    assert field_of_view(640, 320) == pytest.approx(90)
    assert field_of_view(640, focal_length(640, 57.3)) == pytest.approx(57.3)
    camera = pinhole_from_fov((480, 640), 90)
    assert camera == pytest.approx(np.array([[320, 0, 319.5], [0, 320, 239.5], [0, 0, 1]]))
    corner = backproject(np.ones((480, 640)), camera)[0, 0]
    assert math.degrees(math.atan(-corner[0])) == pytest.approx(45, abs=0.1)  # half a pixel short of the border
