"""Temporal metrics by hand: exact scenes, a scale that jumps, and one alignment for a whole clip."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from films import frame, write_frames
from shell import Shell

import densevit
from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.rooms import Rooms
from densevit.errors import DataError
from densevit.evaluation.video.clip import (
    ClipFrame,
    VideoProtocol,
    flicker,
    flow_change,
    score_clip,
    temporal_alignment_error,
)
from densevit.evaluation.video.scores import VideoScores
from densevit.ops.geometry import pinhole
from densevit_rooms.generate import generate

SIZE = (48, 64)
CAMERA = pinhole(50.0, 50.0, 31.5, 23.5)
STILL = np.eye(4)


def moved(x: float = 0.0, z: float = 0.0) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, 3] = x, 0, z
    return pose


def test_alignment_error_of_a_still_camera_is_the_relative_change() -> None:
    first, second = np.full(SIZE, 2.0), np.full(SIZE, 2.2)
    found = temporal_alignment_error(first, second, STILL, STILL, CAMERA, CAMERA)
    assert found == pytest.approx(100 * (0.2 / 2.2 + 0.2 / 2.0) / 2)


def test_true_depth_of_a_camera_that_walks_has_no_alignment_error() -> None:
    wall = [np.full(SIZE, 4.0 - 0.1 * i) for i in range(2)]
    assert temporal_alignment_error(*wall, moved(), moved(z=0.1), CAMERA, CAMERA) == pytest.approx(0, abs=1e-9)
    assert temporal_alignment_error(wall[0], wall[0], moved(), moved(z=0.1), CAMERA, CAMERA) > 2
    assert np.isnan(temporal_alignment_error(*wall, moved(), moved(x=100), CAMERA, CAMERA))


def test_alignment_error_of_a_step_is_that_by_hand() -> None:
    """One row of four pixels, f = 4, and a camera that moves 1 m to the right: a point at z moves by 4 / z pixels.

    Forth, those at 2 m (pixels 0, 1) leave, those at 4 m (2, 3) land on 1, 2, where 5 and 4 m are predicted: errors
    1/5 and 0. Back, 2 m (0) lands on 2, and so does 5 m (1, by 0.8) after it, which stays; 4 m (2) lands on 3, and
    3 m (3) leaves: errors |4 - 5| / 4 and 0.
    """
    camera = pinhole(4.0, 4.0, 1.5, 0.0)
    first, second = np.array([[2.0, 2, 4, 4]]), np.array([[2.0, 5, 4, 3]])
    found = temporal_alignment_error(first, second, moved(), moved(x=1.0), camera, camera)
    assert found == pytest.approx(100 * ((1 / 5 + 0) / 2 + (1 / 4 + 0) / 2) / 2)


def test_no_alignment_error_where_pose_or_camera_of_a_frame_is_unknown() -> None:
    frames = [
        ClipFrame(name=str(i), image=frame(i, SIZE), prediction=np.full(SIZE, 2, np.float32), pose=moved(),
                  intrinsics=CAMERA if i else None)
        for i in range(3)
    ]  # fmt: skip
    assert score_clip(lambda: iter(frames), VideoProtocol(), "none", "metric")["tae"] == 0  # of frames 1 and 2
    row = score_clip(lambda: iter(frames[:2]), VideoProtocol(), "none", "metric")
    assert "tae" not in row
    scores = VideoScores([("walk", row)], VideoProtocol(), "none")
    assert (
        "No tae: it needs the pose and the camera of two neighbouring frames. `densevit check-data` counts those; "
        "--focal gives the camera." in scores.table()
    )


def test_flow_tells_how_steady_a_panned_plane_is() -> None:
    images = [frame(0, SIZE), frame(3, SIZE)]
    depth = np.full(SIZE, 2.0, np.float32)
    steady = flow_change(*images, depth, depth)
    assert steady.rtc == 1 and steady.ratio == pytest.approx(0, abs=1e-6) and steady.opw == pytest.approx(0, abs=1e-3)
    jumped = flow_change(*images, depth, depth * np.float32(1.1))
    assert jumped.rtc == 0 and jumped.ratio == pytest.approx(np.log(1.1), rel=1e-5)
    assert 0.1 < jumped.opw <= 0.2 + 1e-6


def test_flicker_is_blind_to_steady_motion() -> None:
    assert flicker([0.02] * 5) == pytest.approx(0, abs=1e-12)
    assert flicker([0.02, -0.02, 0.02]) == pytest.approx(4)
    assert np.isnan(flicker([0.1]))


def clip(scale: float, shift: float, jitter: float = 0.0) -> Iterator[ClipFrame]:
    rows = np.linspace(1, 5, SIZE[0], dtype=np.float32)[:, None]
    for i in range(4):
        depth = np.broadcast_to(rows, SIZE) + np.float32(0.1 * i)
        disparity = (1 / depth - shift) / scale * (1 + jitter * (-1) ** i)
        yield ClipFrame(
            name=str(i), image=frame(2 * i, SIZE), prediction=disparity.astype(np.float32), depth=depth,
            valid=np.ones(SIZE, bool), intrinsics=CAMERA, pose=STILL,
        )  # fmt: skip


def test_one_scale_and_shift_fits_a_whole_clip_of_disparity() -> None:
    exact = score_clip(lambda: clip(0.02, 0.1), VideoProtocol(), "disparity", "disparity")
    assert exact["abs_rel"] < 1e-4 and exact["d1"] == 1 and exact["frames"] == 4
    jumping = score_clip(lambda: clip(0.02, 0.1, jitter=0.1), VideoProtocol(), "disparity", "disparity")
    assert jumping["abs_rel"] > 0.02 and jumping["flicker"] > 10 * exact["flicker"]  # a fit per frame would hide it
    assert jumping["scale_jitter"] > exact["scale_jitter"] + 1
    two = score_clip(lambda: clip(0.02, 0.1), VideoProtocol(frames=2, margins=(8, 8, 8, 8)), "disparity", "disparity")
    assert two["frames"] == 2


def test_metres_and_disparity_are_aligned_by_what_reads_them() -> None:
    """Disparity without shift is metres up to a scale; the alignments invert what they do not read."""

    def metres() -> Iterator[ClipFrame]:
        return (replace(one, prediction=1 / one.prediction) for one in clip(0.02, 0.0))

    assert score_clip(lambda: clip(0.02, 0.0), VideoProtocol(), "scale", "disparity")["abs_rel"] < 1e-4
    assert score_clip(lambda: clip(0.02, 0.0), VideoProtocol(), "affine", "disparity")["abs_rel"] < 1e-4
    assert score_clip(metres, VideoProtocol(), "disparity", "metric")["abs_rel"] < 1e-4


@pytest.mark.parametrize(
    ("align", "kind", "hole", "end"),
    [
        ("disparity", "disparity", np.nan, 0.5),
        ("affine", "disparity", 0, 80.0),
        ("disparity", "metric", 0, 0.5),
        ("none", "metric", np.nan, 0.5),
    ],
)
def test_pixels_without_a_prediction_are_not_fitted_and_scored_as_an_end_of_the_range(
    align: Any, kind: str, hole: float, end: float
) -> None:
    def holed() -> Iterator[ClipFrame]:
        for one in clip(0.02 if kind == "disparity" else 1, 0.0):
            prediction = one.prediction if kind == "disparity" else 1 / one.prediction
            yield replace(one, prediction=np.where(np.arange(SIZE[1]) % 2, prediction, np.float32(hole)))

    row = score_clip(holed, VideoProtocol(range=(0.5, 80.0)), align, kind)
    depth = np.concatenate([one.depth for one in clip(1, 0) if one.depth is not None])
    assert row["abs_rel"] == pytest.approx((np.abs(depth - end) / depth).mean() / 2, rel=1e-3)


def test_a_clip_of_two_sizes_is_refused() -> None:
    def sizes() -> Iterator[ClipFrame]:
        for one in clip(1, 0):
            yield one if one.name != "2" else ClipFrame(name="2", image=one.image[4:], prediction=one.prediction[4:])

    with pytest.raises(DataError, match="2 is 44x64, those before 48x64, and a clip has one size"):
        score_clip(sizes, VideoProtocol(), "none", "metric")


def test_a_clip_of_one_frame_has_no_consistency() -> None:
    with pytest.raises(DataError, match="needs two or more"):
        score_clip(lambda: iter(list(clip(1, 0))[:1]), VideoProtocol(), "none", "metric")


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("walks")
    generate(root / "data", {"test": 1}, frames=4, size=SIZE, seed=3, fps=10, progress=False)
    maps = root / "maps/test/scene_00000"
    maps.mkdir(parents=True)
    data = Rooms(root=root / "data", split="test")
    for i, name in enumerate(data.names):
        depth = data.read(i).depth
        np.save(root / f"maps/{name}.npy", depth * np.float32(1 + 0.05 * (-1) ** i))
    return root


def test_saved_maps_of_a_walk_are_scored_and_stabilised(walks: Path, shell: Shell) -> None:
    words = ["--predictions", str(walks / "maps"), "--data", "rooms", "--root", str(walks / "data")]
    plain = shell("eval", "--task", "video", *words, "--output", walks / "report").out
    assert "tae" in plain and "metres as predicted" in plain
    before = json.loads((walks / "report/metrics.json").read_text())["metrics"]
    assert before["abs_rel"] == pytest.approx(0.05, abs=1e-3) and before["scale_jitter"] == pytest.approx(5, abs=0.2)
    page = (walks / "report/report.html").read_text()
    assert "the same row of the ground truth" in page and page.count("data:image") >= 10
    shell("eval", "--task", "video", *words, "--stabilize", "--output", walks / "steady")
    after = json.loads((walks / "steady/metrics.json").read_text())["metrics"]
    assert after["tae"] < 0.7 * before["tae"] and after["scale_jitter"] < 0.5 * before["scale_jitter"]
    assert after["abs_rel"] < before["abs_rel"]
    maps = {path.relative_to(walks / "maps").with_suffix("").as_posix(): np.load(path) for path in walks.rglob("*.npy")}
    rooms = Rooms(root=walks / "data", split="test")
    given = densevit.evaluate(predictions=maps, data=rooms, task="video").scores
    assert given == pytest.approx(before, rel=1e-6)


def test_pixels_without_a_prediction_are_neither_steady_nor_a_jump(walks: Path) -> None:
    """Saved metres are 0 there, which counted as the same nearest depth in every frame; frames not scored need none."""
    rooms = Rooms(root=walks / "data", split="test")
    left = np.arange(SIZE[1]) < SIZE[1] * 0.6
    (walks / "holes").mkdir(exist_ok=True)
    for name in rooms.names[:3]:
        np.save(walks / "holes" / f"{Path(name).name}.npy", np.where(left, 0, np.load(walks / f"maps/{name}.npy")))
    plain, holed = (
        densevit.evaluate(predictions=walks / folder, data=rooms, task="video", frames=3).scores
        for folder in ("maps", "holes")
    )
    assert holed["rtc"] < 0.05 and holed["tae"] == pytest.approx(plain["tae"], rel=0.1)
    assert holed["scale_jitter"] == pytest.approx(plain["scale_jitter"], rel=0.1) and holed["abs_rel"] > 0.5


def test_depth_of_a_mixture_that_is_no_metres_is_not_scored_as_metres(walks: Path) -> None:
    """Three metres where the ground truth has one; its images still say how steady the maps are."""
    data = {"type": "rooms", "root": str(walks / "data"), "split": "test"}
    mixture = open_dataset({"type": "mix", "sources": [{"data": data, "truth": "relative"}]})
    maps = [3 * mixture.read(i).depth for i in range(len(mixture))]
    metres = densevit.evaluate(predictions=maps, data=mixture, task="video").scores
    assert "abs_rel" not in metres and metres["rtc"] > 0
    affine = densevit.evaluate(predictions=maps, data=mixture, task="video", prediction_type="affine").scores
    assert affine["abs_rel"] < 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fuse"], "belongs to --stabilize"),
        (["--protocol", "video_depth_anything"], "is for kitti, sintel, scannet, not rooms"),
        (["--videos", "a.mp4"], "are scored in place of a data set"),
        (["--align", "none", "--prediction-type", "disparity"], "for metres, and these are disparity"),
    ],
)
def test_wrong_options_are_refused(walks: Path, shell: Shell, arguments: list[str], message: str) -> None:
    words = ["--predictions", str(walks / "maps"), "--data", "rooms", "--root", str(walks / "data")]
    assert message in shell.refused("eval", "--task", "video", *words, *arguments)


def test_single_views_are_no_clip(tmp_path: Path, shell: Shell) -> None:
    generate(tmp_path / "data", {"test": 1}, frames=2, size=(16, 16), seed=3, progress=False)
    write_frames(tmp_path / "maps", [frame(0)])
    words = ["--data", "rooms", "--root", str(tmp_path / "data"), "--suffix", ".npy"]
    maps = tmp_path / "maps/test/scene_00000"
    maps.mkdir(parents=True)
    for i in range(2):
        np.save(maps / f"{i:02d}.npy", np.ones((16, 16), np.float32))
    told = shell.refused("eval", "--task", "video", "--predictions", tmp_path / "maps", *words)
    assert "single views, not walks" in told
