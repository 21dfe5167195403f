"""Projection, warping and occlusion, by hand and at the depth and poses of a rendered walk."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.overrides import TorchFunctionMode

from densevit.objectives.self_supervised import geometry
from densevit.objectives.self_supervised.geometry import FramePairs
from densevit.objectives.self_supervised.objective import poses_of
from densevit.objectives.self_supervised.photometric import geometric_difference, photometric_error
from densevit.ops.geometry import pinhole, scale
from densevit.structures import Batch
from densevit.utils.device import gpu_products
from densevit_rooms.walk import render_walk

CAMERA = torch.tensor([[[20.0, 0.5, 7.0], [0, 30, 5], [0, 0, 1]]], dtype=torch.float64)


def moved(x: float = 0.0, y: float = 0.0, z: float = 0.0, turn: float = 0.0) -> Tensor:
    """A rotation about the vertical axis, then a shift."""
    return geometry.rigid(turned([[0.0, turn, 0.0]]), torch.tensor([[x, y, z]], dtype=torch.float64))


def turned(vectors: list[list[float]]) -> Tensor:
    """Rotations by axis times angle in radians."""
    return torch.from_numpy(Rotation.from_rotvec(vectors).as_matrix())


def test_a_plane_moves_by_focal_length_times_baseline_over_depth() -> None:
    depth = torch.full((1, 1, 11, 15), 4.0, dtype=torch.float64)
    pixels, z = geometry.project(depth, moved(x=0.4, y=-0.2), CAMERA, CAMERA)
    u, v = geometry.grid(depth)
    torch.testing.assert_close(pixels[0, ..., 1], (v - 30 * 0.2 / 4).expand(11, 15))
    torch.testing.assert_close(pixels[0, ..., 0], (u + 20 * 0.4 / 4 - 0.5 * 0.2 / 4).expand(11, 15))  # the skew is 0.5
    assert (z == 4).all()


def test_a_motion_and_its_inverse_cancel() -> None:
    vectors = [[0.3, -1.2, 0.5], [0.0, 0.0, 0.0]]
    motions = geometry.rigid(turned(vectors), torch.tensor(vectors, dtype=torch.float64).flip(1))
    torch.testing.assert_close(motions @ geometry.inverse(motions), torch.eye(4, dtype=torch.float64).expand(2, 4, 4))


def test_under_mixed_precision_poses_and_projections_are_not_multiplied_in_tf32() -> None:
    """TF32 keeps 11 bits of a factor, so that whole numbers are exact up to 2048 and pixel 320.4 becomes 320.5."""
    seen: list[bool] = []

    class Products(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in ("matmul", "__matmul__"):
                seen.append(torch.backends.cuda.matmul.allow_tf32)
            return func(*args, **(kwargs or {}))

    pose, camera = moved(x=0.4).expand(2, 4, 4).float(), CAMERA.expand(2, 3, 3).float()
    batch = Batch(names=("a", "b"), indices=(0, 1), image=torch.zeros(2, 3, 11, 15), pose=pose)
    pairs = FramePairs.of(2, 2, torch.device("cpu"))
    with gpu_products(tf32=True), Products():
        motion, _ = poses_of(batch, pairs)
        geometry.project(torch.ones(2, 1, 11, 15), motion, camera, camera)
    assert seen == [False] * 4


def test_sampling_at_whole_pixels_returns_them_and_half_way_the_mean() -> None:
    """Published code normalises by w - 1 for align_corners=False and is up to half a pixel off."""
    image = torch.rand(1, 3, 5, 8, dtype=torch.float64)
    u, v = geometry.grid(image[:, :1])
    here = torch.stack([u.expand(5, 8), v.expand(5, 8)], -1)[None]
    torch.testing.assert_close(geometry.sample(image, here), image)
    half = geometry.sample(image, here + torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(half[..., :-1], (image[..., :-1] + image[..., 1:]) / 2)
    torch.testing.assert_close(half[..., -1], image[..., -1])  # the border's beyond it
    seen = geometry.inside(here + torch.tensor([0.5, 0.0]), torch.ones(1, 1, 5, 8))
    assert seen[..., :-1].all() and not seen[..., -1].any()
    assert not geometry.inside(here, -torch.ones(1, 1, 5, 8)).any()  # behind the camera


def test_a_resized_camera_is_that_of_the_transforms() -> None:
    np.testing.assert_allclose(geometry.scaled(CAMERA, 0.5)[0], scale(0.5, 0.5) @ CAMERA[0].numpy())


def test_pairs_are_neighbours_of_one_clip_in_both_directions() -> None:
    pairs = FramePairs.of(6, 3, torch.device("cpu"))
    assert list(zip(pairs.targets.tolist(), pairs.sources.tolist(), strict=True)) == [
        (0, 1), (1, 2), (3, 4), (4, 5), (1, 0), (2, 1), (4, 3), (5, 4),
    ]  # fmt: skip
    assert pairs.reversed(pairs.targets).equal(pairs.sources)
    values = pairs.targets.double()[:, None, None] + torch.tensor([[0.0, 0.5]])
    table = pairs.by_target(values, 6, math.inf)
    assert table[1, :, 0].tolist() == [[1, 1.5], [1, 1.5]] and table[0, :, 0].tolist() == [[0, 0.5], [math.inf] * 2]


def test_what_a_nearer_object_hides_in_the_other_view_does_not_return() -> None:
    """A box 1 m away before a wall at 4 m; the camera moves right by 0.2 m: focal length 20, so by 4 and 1 pixels."""
    depth = torch.full((2, 1, 5, 24), 4.0, dtype=torch.float64)
    depth[0, ..., 12:18] = 1
    depth[1, ..., 8:14] = 1
    camera = torch.tensor(pinhole(20, 20, 11.5, 2))[None].expand(2, 3, 3)
    there, _ = geometry.project(depth, torch.cat([moved(x=-0.2), moved(x=0.2)]), camera, camera)
    seen = geometry.returns(there[:1], there[1:])[0, 0, 2]
    assert seen[12:18].all() and not seen[9:12].any()  # the wall left of the box, at 9 to 11, is behind it
    assert seen[:9].all() and seen[18:].all()


@pytest.fixture(scope="module")
def walk() -> dict[str, Tensor]:
    """Three frames of a walk, with colours that vary smoothly over the surfaces and do not depend on the view."""
    samples = [part.frame.sample for part in render_walk(3, "test", 1, 3, (144, 192), 6.0, movers=0)]
    parts: dict[str, Any] = {"depth": [], "camera": [], "pose": [], "rendered": [], "image": []}
    for sample in samples:
        parts["depth"].append(torch.from_numpy(sample.depth).double()[None])
        parts["camera"].append(torch.from_numpy(sample.intrinsics))
        parts["pose"].append(torch.from_numpy(sample.pose))
        parts["rendered"].append(torch.from_numpy(sample.image.copy()).permute(2, 0, 1).double() / 255)
        points = world_points(parts["depth"][-1], parts["camera"][-1], parts["pose"][-1])
        waves = [torch.sin(3 * points + shift).sum(0) + torch.sin(7 * points.sum(0) + shift) for shift in (0, 2, 4)]
        parts["image"].append(0.5 + 0.1 * torch.stack(waves))
    return {name: torch.stack(values) for name, values in parts.items()}


def world_points(depth: Tensor, camera: Tensor, pose: Tensor) -> Tensor:
    v, u = torch.meshgrid(*(torch.arange(side).double() for side in depth.shape[1:]), indexing="ij")
    rays = torch.linalg.inv(camera) @ torch.stack([u, v, torch.ones_like(u)]).flatten(1)
    return (pose[:3, :3] @ (rays * depth.flatten()) + pose[:3, 3:]).view(3, *depth.shape[1:])


def error(walk: dict[str, Tensor], factor: float, images: str = "image") -> float:
    """The mean photometric error at `factor` times the rendered depth.

    Of points that both frames see at the same depth, to 1%, two pixels from all others: SSIM's windows and
    interpolation reach so far.
    """
    pairs = FramePairs.of(3, 3, torch.device("cpu"))
    motion = geometry.inverse(walk["pose"][pairs.sources]) @ walk["pose"][pairs.targets]
    cameras = walk["camera"][pairs.targets], walk["camera"][pairs.sources]
    true, z = geometry.project(walk["depth"][pairs.targets], motion, *cameras)
    there = geometry.sample(walk["depth"][pairs.sources], true)
    seen = geometry.returns(true, pairs.reversed(true)) & (geometric_difference(z, there) < 0.005)
    pixels, z = geometry.project(factor * walk["depth"][pairs.targets], motion, *cameras)
    seen &= geometry.inside(pixels, z)
    seen = F.max_pool2d((~seen).double(), 5, 1, 2) == 0
    assert seen.double().mean() > 0.3
    warped = geometry.sample(walk[images][pairs.sources], pixels)
    return float(photometric_error(warped, walk[images][pairs.targets])[seen].mean())


def test_at_rendered_depth_and_poses_the_error_vanishes_outside_occlusions(walk: dict[str, Tensor]) -> None:
    assert error(walk, 1) < 0.02 * error(walk, 2)
    assert error(walk, 1) < 0.02 * error(walk, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("images", ["image", "rendered"])
def test_along_a_scale_of_depth_the_error_is_least_at_one(walk: dict[str, Tensor], images: str) -> None:
    """Rendered images have sensor noise, which the loss sees; its minimum is where the depth is right, all the same."""
    factors = np.geomspace(0.8, 1.25, 13)
    errors = [error(walk, float(factor), images) for factor in factors]
    near = np.abs(np.log(factors)) < 0.08
    a, b, _ = np.polyfit(np.log(factors[near]), np.array(errors)[near], 2)
    assert abs(-b / (2 * a)) < 0.01
    assert errors[0] > errors[3] > errors[6] < errors[9] < errors[12]


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    depth = (2 + torch.rand(1, 1, 4, 5, dtype=torch.float64)).requires_grad_()
    rotation = turned([[0.02, -0.03, 0.01]]).requires_grad_()
    step = torch.tensor([[0.11, 0.06, -0.05]], dtype=torch.float64, requires_grad=True)
    image = torch.rand(1, 3, 4, 5, dtype=torch.float64)

    def warped(depth: Tensor, rotation: Tensor, step: Tensor) -> Tensor:
        motion = geometry.rigid(rotation, step)
        return geometry.sample(image, geometry.project(depth, motion, CAMERA, CAMERA)[0])

    assert torch.autograd.gradcheck(warped, (depth, rotation, step), eps=1e-7, atol=1e-5)
