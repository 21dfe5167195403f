"""The motion between two frames, measured by matches: of a rendered room whose motion is known."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from densevit.data.datasets.base import Dataset
from densevit.data.transforms.geometric import HFlip
from densevit.errors import DataError
from densevit.objectives.self_supervised.odometry import MeasuredMotion, baseline_lengths, relative_motion
from densevit.objectives.self_supervised.pairs import PairMeasurements
from densevit.structures import Sample

CAMERA = np.array([[110.0, 0, 63.5], [0, 110, 47.5], [0, 0, 1]])


def frame(turn: float, place: tuple[float, float, float], name: str = "a") -> Sample:
    """A wall and a board before it with fine patterns, from a camera turned about the vertical axis by degrees."""
    v, u = np.mgrid[:96, :128]
    rays = np.stack([u, v, np.ones_like(u)], -1) @ np.linalg.inv(CAMERA).T
    rotation = Rotation.from_euler("yx", [turn, turn / 3], degrees=True).as_matrix()
    directions = rays @ rotation.T
    far, near = ((z - place[2]) / directions[..., 2:] for z in (4.0, 2.0))
    on_board = np.abs(place + near * directions - [0.2, 0.1, 2])[..., :2].max(-1, keepdims=True) < 0.5
    depth = np.where(on_board, near, far)[..., 0]
    points = place + depth[..., None] * directions
    draw = np.random.default_rng(0)
    waves = np.sin(points @ (6 * draw.normal(size=(3, 40))) + draw.uniform(0, 6, 40)).sum(-1)
    image = np.repeat((128 + 12 * waves).clip(0, 255)[..., None], 3, -1).astype(np.uint8)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, place
    return Sample(
        name=name,
        image=image,
        depth=depth.astype(np.float32),
        valid=np.ones(depth.shape, np.bool_),
        intrinsics=CAMERA,
        pose=pose,
    )


def degrees(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))))


def test_rotation_direction_and_depth_are_those_of_the_scene() -> None:
    poses = ((0.0, (0.0, 0.0, 0.0)), (1.5, (0.2, 0.02, 0.05)), (0.5, (0.1, 0.0, 0.3)))
    for first, second in pairwise([frame(*pose) for pose in poses]):
        assert first.pose is not None and second.pose is not None and first.depth is not None
        true = np.linalg.inv(second.pose) @ first.pose
        measured = relative_motion(first, second)
        assert measured is not None
        motion, points = measured
        assert np.degrees(Rotation.from_matrix(motion[:3, :3] @ true[:3, :3].T).magnitude()) < 0.3
        assert degrees(motion[:3, 3], true[:3, 3]) < 3
        depth = first.depth[tuple(points.places.T.astype(int)[::-1])]
        assert np.median(depth / points.depth) == pytest.approx(np.linalg.norm(true[:3, 3]), rel=0.04)


def test_a_camera_that_only_turns_and_frames_of_two_places_have_no_measured_motion() -> None:
    other = frame(0, (0, 0, 0))
    noise = np.random.default_rng(1).integers(0, 255, other.image.shape, dtype=np.uint8)
    assert relative_motion(frame(0, (0, 0, 0)), frame(3, (0, 0, 0))) is None
    assert relative_motion(other, other.with_arrays({"image": noise})) is None
    assert relative_motion(other, other.with_arrays({"intrinsics": None})) is None


class Walk(Dataset):
    """Three frames of one video, the last of which cannot be read."""

    names, video = ("walk/0", "walk/1", "walk/2"), True

    def read(self, index: int) -> Sample:
        if index == 2:
            raise DataError("unreadable")
        return frame(1.0 * index, (0.2 * index, 0.0, 0.1 * index), self.names[index])


def test_a_frame_carries_its_motion_to_the_next_through_transforms(tmp_path: Path) -> None:
    walk = Walk()
    measured = MeasuredMotion(walk, 1, PairMeasurements(tmp_path))
    first, second = (measured(index, walk.read(index)) for index in (0, 1))
    assert set(first.inputs) == {"next_motion", "baselines"} and not second.inputs
    mirrored = HFlip(p=1.0)(first, np.random.default_rng(0))
    sign = np.diag([-1.0, 1, 1, 1])
    np.testing.assert_allclose(mirrored.inputs["next_motion"], sign @ first.inputs["next_motion"] @ sign, atol=1e-12)
    np.testing.assert_array_equal(mirrored.inputs["baselines"], first.inputs["baselines"][:, ::-1])
    with pytest.raises(DataError, match="the motion of 0 of 1 pairs of frames"):
        MeasuredMotion(walk, 2, PairMeasurements(tmp_path))


def test_the_length_of_a_step_is_the_mean_log_ratio_of_depth_to_baselines_without_outliers() -> None:
    """By hand: ratios 2, 2, 2 * 1.21 and an outlier; of the second image nothing is measured."""
    baselines = torch.zeros(2, 1, 2, 3)
    baselines[0, 0, 0] = torch.tensor([1.0, 2.0, 1.0])
    baselines[0, 0, 1, 0] = 0.1
    depth = torch.tensor([2.0, 4.0, 2.42, 5.0, 7.0, 9.0]).view(1, 1, 2, 3).repeat(2, 1, 1, 1).requires_grad_()
    length, known = baseline_lengths(depth, baselines)
    assert known.tolist() == [True, False]
    assert length[0].item() == pytest.approx(2 * 1.21 ** (1 / 3), rel=1e-6)
    (gradient,) = torch.autograd.grad(length[0].log(), depth)
    assert (gradient * depth).sum().item() == pytest.approx(1, rel=1e-6)  # the length scales as depth does
