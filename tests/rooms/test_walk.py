"""Walks: poses, depth and optical flow of neighbouring frames say the same of every point."""

from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from densevit.data.datasets.rooms import Rooms
from densevit.data.io.writers import STEPS, ZERO, encode_flow
from densevit.errors import DataError
from densevit.ops.flow import sample
from densevit.ops.geometry import backproject
from densevit_rooms.camera import MOUNTS
from densevit_rooms.floorplan import CELL
from densevit_rooms.generate import generate
from densevit_rooms.renderer import sample_camera
from densevit_rooms.scene import build_scene, scene_rng
from densevit_rooms.walk import WALK, WalkFrame, render_walk, walk_path

SIZE = (48, 64)


@pytest.fixture(scope="module")
def walk() -> list[WalkFrame]:
    return list(render_walk(3, "test", 1, 6, SIZE, 10.0))


def test_a_walk_is_smooth_and_at_walking_pace(walk: list[WalkFrame]) -> None:
    poses = np.stack([part.frame.sample.pose for part in walk])
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    assert 0 < steps.max() < 0.2  # metres a tenth of a second
    turns = [np.arccos(np.clip((np.trace(a[:3, :3].T @ b[:3, :3]) - 1) / 2, -1, 1)) for a, b in pairwise(poses)]
    assert max(turns) < 0.3
    assert [part.time for part in walk] == pytest.approx([i / 10 for i in range(6)])
    assert walk[-1].flow is None


@pytest.mark.parametrize("scene", [37, 52])
def test_a_camera_finds_its_way_between_things_that_stand_close_together(scene: int) -> None:
    room, rng = build_scene(8, "test", scene), scene_rng(0, "test", scene, 0, WALK)
    first = sample_camera(rng, room, SIZE, MOUNTS["hand"])
    path = np.stack([camera.position[:2] for camera in walk_path(rng, room, first, 24, 10.0)])
    assert np.ptp(path, axis=0).max() > 0.5
    cells = (path / CELL).astype(int)
    assert room.floor.clearance()[cells[:, 1], cells[:, 0]].min() > 0.05


def test_flow_leads_to_the_same_point_of_the_next_frame(walk: list[WalkFrame]) -> None:
    """What is static has the same place in the world; what is not hidden is found there by depth and colour."""
    for here, there in pairwise(walk):
        first, second = here.frame.sample, there.frame.sample
        points = (
            backproject(first.depth.astype(np.float64), first.intrinsics) @ first.pose[:3, :3].T + first.pose[:3, 3]
        )
        local = (points - second.pose[:3, 3]) @ second.pose[:3, :3]
        found = sample(second.depth, here.flow)
        known = np.isfinite(here.flow).all(-1) & (found > 0)
        agrees = known & (np.abs(found - local[..., 2]) < 0.02 * local[..., 2])
        assert agrees.mean() > 0.7  # the rest moves, is hidden, outside or at an edge
        colour = sample(second.image.astype(np.float32), here.flow)
        assert np.abs(colour - first.image)[agrees].mean() < 12


def test_things_move_and_their_flow_goes_with_them() -> None:
    still = list(render_walk(3, "test", 1, 2, SIZE, 10.0, movers=0))
    moving = list(render_walk(3, "test", 1, 2, SIZE, 10.0, movers=3))
    np.testing.assert_array_equal(still[0].frame.sample.pose, moving[0].frame.sample.pose)
    np.testing.assert_array_equal(still[0].frame.sample.depth, moving[0].frame.sample.depth)  # they begin at rest
    other = np.abs(np.nan_to_num(still[0].flow - moving[0].flow)).max(-1) > 1e-3
    numbers, counts = np.unique(moving[0].frame.instances[other], return_counts=True)
    assert 0 not in numbers  # walls stay
    for number, count in zip(numbers, counts, strict=True):
        assert count == (moving[0].frame.instances == number).sum()


def read_flow(path: Path) -> np.ndarray:
    """Pixels along x and y; NaN where not known."""
    pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED).astype(float)
    return np.where(pixels[..., :1] > 0, (pixels[..., :0:-1] - ZERO) / STEPS, np.nan)


def test_a_walk_on_disk_is_read_back(tmp_path: Path) -> None:
    generate(tmp_path, {"test": 1}, frames=3, size=SIZE, seed=3, fps=10, progress=False)
    data = Rooms(root=tmp_path, split="test")
    assert data.fps == 10
    expected = list(render_walk(3, "test", 0, 3, SIZE, 10.0))
    for number, part in enumerate(expected):
        found = data.read(number)
        np.testing.assert_allclose(found.pose, part.frame.sample.pose)
        np.testing.assert_allclose(found.depth, part.frame.sample.depth, atol=1e-4)
    flow = read_flow(tmp_path / "test/scene_00000/flow_01.png")
    np.testing.assert_allclose(flow, expected[1].flow, atol=1 / 128)
    assert not (tmp_path / "test/scene_00000/flow_02.png").exists()


def test_flow_beyond_16_bits_is_unknown(tmp_path: Path) -> None:
    flow = np.full((4, 5, 2), [-511.5, 3.25], np.float32)
    flow[0, 0], flow[1, 1] = np.nan, 600
    (tmp_path / "flow.png").write_bytes(encode_flow(flow))
    found = read_flow(tmp_path / "flow.png")
    assert np.isnan(found[0, 0]).all() and np.isnan(found[1, 1]).all() and found[2, 2].tolist() == [-511.5, 3.25]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"fps": 0.5}, "1 to 240"), ({"fps": 10, "views": 2}, "views are for"), ({"movers": -1}, "0 or more")],
)
def test_a_walk_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        generate(tmp_path, {"test": 1}, progress=False, **options)  # type: ignore[arg-type]
