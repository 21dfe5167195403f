"""Cameras of batches against the 3x3 matrices of `geometry.py`, whose formulas are tested by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor

from densevit.models.conditioning.base import ConditionedParts
from densevit.models.conditioning.rays import Rays
from densevit.models.decoders.linear import Linear
from densevit.ops import geometry
from densevit.ops.camera import Camera, canonical_scale
from densevit.structures import EncoderOutput, FeatureSpec


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
