"""Cameras and geometry: numbers worked out by hand, or the property that a moved camera sees the same scene."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from densevit.models.conditioning.base import ConditionedParts
from densevit.models.conditioning.rays import Rays
from densevit.models.decoders.linear import Linear
from densevit.ops import geometry
from densevit.ops.camera import Camera, canonical_scale
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
from densevit.structures import EncoderOutput, FeatureSpec

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


def camera() -> Camera:
    return Camera(torch.tensor([[310.0, 290.0, 170.0, 110.0]]))


def matrix(camera: Camera) -> np.ndarray:
    fx, fy, cx, cy = camera.values[0].double().tolist()
    return geometry.pinhole(fx, fy, cx, cy)


@pytest.mark.parametrize(
    ("changed", "move"),
    [
        (camera().cropped(20, 30), geometry.shift(-30, -20)),
        (camera().cropped(-3, -5), geometry.shift(5, 3)),
        (camera().resized((240, 320), (120, 480)), geometry.scale(1.5, 0.5)),
        (camera().mirrored(320), geometry.mirror(320)),
    ],
)
def test_cropping_resizing_and_mirroring_are_those_of_matrices(changed: Camera, move: np.ndarray) -> None:
    expected = geometry.transform_intrinsics(matrix(camera()), move)
    np.testing.assert_allclose(matrix(changed), expected, rtol=1e-6)


def test_directions_are_those_of_back_projected_pixels() -> None:
    given = camera().directions((240, 320), (240, 320))[0].numpy()
    points = geometry.backproject(np.ones((240, 320)), matrix(camera()))
    np.testing.assert_allclose(given.transpose(1, 2, 0), points[..., :2], atol=1e-6)
    # The centre of a cell of 16 x 16 pixels is the mean of its pixels' directions.
    cells = points[..., :2].reshape(15, 16, 20, 16, 2).mean((1, 3))
    np.testing.assert_allclose(
        camera().directions((240, 320), (15, 20))[0].numpy().transpose(1, 2, 0), cells, atol=1e-6
    )


def test_the_canonical_scale_takes_the_mean_of_both_focal_lengths() -> None:
    assert canonical_scale(camera(), 150.0).flatten().tolist() == [2.0]


def test_images_without_a_camera_get_no_embedding_and_others_begin_at_none() -> None:
    specs = [FeatureSpec(8, 16)]
    rays = Rays(ConditionedParts(specs, Linear(specs, 0), {}))
    features = EncoderOutput((torch.randn(2, 8, 3, 4),), (torch.zeros(2, 0, 8),), (48, 64))
    inputs = {"camera": torch.tensor([[60.0, 60.0, 31.5, 23.5], [float("nan")] * 4])}

    def embedded() -> Tensor:
        return rays(features, inputs, lambda features, head: pytest.fail("no first pass is needed")).maps[0]

    assert torch.equal(embedded(), features.maps[0])
    torch.nn.init.normal_(rays.embed[0][-1].weight)
    known, unknown = embedded()
    assert torch.equal(unknown, features.maps[0][1]) and not torch.equal(known, features.maps[0][0])
    torch.stack([known, unknown]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in rays.parameters())
