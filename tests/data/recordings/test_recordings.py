"""The same walk in every layout of a recorder gives the same images, depth, cameras, poses and times."""

import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from densevit.api.data import init
from densevit.data.datasets import recording
from densevit.data.datasets.depth.scannet import Scannet
from densevit.data.datasets.depth.seven_scenes import SevenScenes
from densevit.data.datasets.depth.tum import CAMERAS, Tum
from densevit.data.datasets.folder import Folder
from densevit.data.datasets.named import named_spec
from densevit.data.datasets.recording import Recording
from densevit.data.folder_facts import look_at_folder
from densevit.data.loading.clips import videos
from densevit.data.recordings.blocks import is_consecutive, split_blocks
from densevit.data.recordings.layouts import read_folders, read_scannet
from densevit.data.recordings.poses import pose_of, poses_at, read_trajectory
from densevit.data.validation import SplitToValidate, validate
from densevit.errors import ConfigError, DataError
from densevit.inference.predict.point_files import read_pose
from densevit.ops.geometry import backproject, pinhole

H, W, N = 24, 32, 8
K = pinhole(40.0, 41.0, 15.0, 12.0)
TIMES = 1305031452.5 + 0.1 * np.arange(N)
OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])  # ARKit, OpenGL: x right, y up, and the camera looks along -z


def pose(i: int) -> np.ndarray:
    turned = np.eye(4)
    turned[:3, :3] = Rotation.from_euler("yxz", [5 * i, 3, -2 * i], degrees=True).as_matrix()
    turned[:3, 3] = 0.1 * i, 0.02, -0.05 * i
    return turned


def image(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 255, (H, W, 3), np.uint8)


def metres(i: int) -> np.ndarray:
    depth = np.random.default_rng(100 + i).integers(500, 6000, (H, W)) / 1000
    depth[:2] = 0
    return depth


def put(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels)


def put_pair(image_path: Path, depth_path: Path, i: int, units: float = 1000) -> None:
    put(image_path, image(i)[..., ::-1])
    stored = np.rint(metres(i) * units).astype(np.uint16)
    stored[-1, -1] = 65535
    put(depth_path, stored)


def quaternion(i: int) -> str:
    return " ".join(f"{x:.9f}" for x in (*pose(i)[:3, 3], *Rotation.from_matrix(pose(i)[:3, :3]).as_quat()))


def text(matrix: np.ndarray) -> str:
    return "\n".join(" ".join(f"{x:.9f}" for x in row) for row in matrix)


def write_tum(root: Path) -> None:
    for name, shift in (("rgb", 0.0), ("depth", 0.004)):
        lines = "".join(f"{t + shift:.6f} {name}/{t + shift:.6f}.png\n" for t in TIMES)
        root.mkdir(exist_ok=True)
        (root / f"{name}.txt").write_text(f"# time file\n{lines}")
    for i, t in enumerate(TIMES):
        put_pair(root / f"rgb/{t:.6f}.png", root / f"depth/{t + 0.004:.6f}.png", i, 5000)
    (root / "groundtruth.txt").write_text("".join(f"{t:.6f} {quaternion(i)}\n" for i, t in enumerate(TIMES)))


def write_frames(root: Path) -> None:
    for i in range(N):
        put_pair(root / f"frame-{i:06d}.color.png", root / f"frame-{i:06d}.depth.png", i)
        (root / f"frame-{i:06d}.pose.txt").write_text(text(pose(i)))


def write_scannet(root: Path) -> None:
    for i in range(N):
        put(root / f"color/{i}.jpg", image(i)[..., ::-1])
        put_pair(root / f"x/{i}.png", root / f"depth/{i}.png", i)
        (root / "pose").mkdir(exist_ok=True)
        (root / f"pose/{i}.txt").write_text(text(pose(i)))
    (root / "intrinsic").mkdir()
    for kind in ("color", "depth"):
        (root / f"intrinsic/intrinsic_{kind}.txt").write_text(text(np.block([[K, np.zeros((3, 1))], [0, 0, 0, 1]])))


def write_arkit(root: Path) -> None:
    for i, t in enumerate(TIMES):
        put_pair(root / f"frame_{i:05d}.png", root / f"depth_{i:05d}.png", i)
        facts = {"cameraPoseARFrame": (pose(i) @ OPENGL).ravel().tolist(), "intrinsics": K.ravel().tolist(), "time": t}
        (root / f"frame_{i:05d}.json").write_text(json.dumps(facts))


def write_stray(root: Path) -> None:
    rows = []
    for i, t in enumerate(TIMES):
        put_pair(root / f"rgb/{i:06d}.png", root / f"depth/{i:06d}.png", i)
        arkit = Rotation.from_matrix((pose(i) @ OPENGL)[:3, :3])
        turned = (arkit * Rotation.from_quat([1, 0, 0, 0])).as_quat()  # as StrayScanner/Helpers/OdometryEncoder.swift
        rows.append(", ".join(map(str, (t, f"{i:06d}", *pose(i)[:3, 3], *turned))))
    (root / "odometry.csv").write_text("timestamp, frame, x, y, z, qx, qy, qz, qw\n" + "\n".join(rows))
    (root / "camera_matrix.csv").write_text("\n".join(", ".join(map(str, row)) for row in K))


def write_nerf(root: Path) -> None:
    frames = []
    for i, t in enumerate(TIMES):
        put_pair(root / f"images/{i}.png", root / f"depth/{i}.png", i)
        frames.append(
            {"file_path": f"images/{i}" + ".png" * (i % 2), "depth_file_path": f"depth/{i}.png", "timestamp": t}
            | {"transform_matrix": (pose(i) @ OPENGL).tolist(), "cy": K[1, 2] + 0.5}
        )
    # nerfstudio copies COLMAP's numbers (process_data/colmap_utils.py), and its pixels begin at 0.5 (get_image_coords)
    camera = {"fl_x": K[0, 0], "fl_y": K[1, 1], "cx": K[0, 2] + 0.5, "cy": 0}
    (root / "transforms.json").write_text(json.dumps({**camera, "frames": frames}))


def write_colmap(root: Path) -> None:
    lines = []
    for i in range(N):
        put_pair(root / f"images/{i}.png", root / f"depths/{i}.png", i)
        inverse = np.linalg.inv(pose(i))
        x, y, z, w = Rotation.from_matrix(inverse[:3, :3]).as_quat()
        lines += [" ".join(map(str, (i + 1, w, x, y, z, *inverse[:3, 3], 1, f"{i}.png"))), "1.0 2.0 -1" * (i % 2)]
    (root / "sparse/0").mkdir(parents=True)
    (root / "sparse/0/images.txt").write_text("# images\n" + "\n".join(lines) + "\n")
    camera = f"1 PINHOLE {W} {H} {K[0, 0]} {K[1, 1]} {K[0, 2] + 0.5} {K[1, 2] + 0.5}\n"
    (root / "sparse/0/cameras.txt").write_text(camera)


def write_folders(root: Path) -> None:
    for i, t in enumerate(TIMES):
        put_pair(root / f"rgb/{t:.6f}.png", root / f"depth/{t + 0.004:.6f}.png", i)
    (root / "trajectory.txt").write_text("".join(f"{t:.6f} {quaternion(i)}\n" for i, t in enumerate(TIMES)))


def write_table(root: Path) -> None:
    rows = []
    for i in range(N):
        put_pair(root / f"images/{i}.png", root / f"depths/{i}.png", i)
        rows.append(",".join([f"{i}.png", *quaternion(i).split()]))
    (root / "poses.csv").write_text("name,tx,ty,tz,qx,qy,qz,qw\n" + "\n".join(rows))


LOSSLESS = {"tum", "arkit", "stray", "nerf", "colmap", "folders", "table", "frames"}
TIMED = {"tum", "arkit", "stray", "nerf", "folders"}
WRITERS: Sequence[Callable[[Path], None]] = (
    write_tum, write_frames, write_scannet, write_arkit, write_stray, write_nerf, write_colmap, write_folders,
    write_table,
)  # fmt: skip


def as_windows_and_a_mac_write_it(root: Path) -> None:
    """Byte order marks, CRLF, blank lines at the end, and a hidden file beside each image."""
    for path in [*root.rglob("*")]:
        if path.suffix in (".txt", ".csv", ".json"):
            path.write_bytes(b"\xef\xbb\xbf" + (path.read_text() + "\n\n").replace("\n", "\r\n").encode())
        elif path.is_file():
            path.with_name(f"._{path.name}").write_bytes(b"\0\5\26\7")


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_layout_gives_the_same_walk(write: Callable[[Path], None], foreign: bool, tmp_path: Path) -> None:
    name = write.__name__.removeprefix("write_")
    write(tmp_path / "walk")
    if foreign:
        as_windows_and_a_mac_write_it(tmp_path / "walk")
    (tmp_path / "intrinsics.json").write_text(json.dumps({"intrinsic_matrix": K.T.ravel().tolist()}))  # Open3D's
    data = Recording(root=tmp_path)
    assert len(data) == N and {data.scene(i) for i in range(N)} == {"walk"}
    own = f"the files of {name}" if name in ("scannet", "arkit", "stray", "nerf", "colmap") else "intrinsics.json"
    assert f"poses of 8 of 8 images; camera of 8 of them from {own}" in data.facts
    for i in range(N):
        sample, files = data.read(i), data.samples[i]
        assert sample.pose is not None and sample.intrinsics is not None and sample.depth is not None
        np.testing.assert_allclose(sample.pose, pose(i), atol=1e-6)
        np.testing.assert_allclose(sample.intrinsics, K, atol=1e-6)
        truth = metres(i)
        truth[-1, -1] = 0  # stored 65535
        np.testing.assert_allclose(sample.depth, truth, atol=1e-3)
        assert name not in LOSSLESS or np.array_equal(sample.image, image(i))
        assert files.time == (pytest.approx(TIMES[i], abs=1e-4) if name in TIMED else None)


@pytest.mark.parametrize(
    ("facts", "camera"),
    [
        ({"camera_angle_x": math.pi / 2}, (W / 2, W / 2, (W - 1) / 2, (H - 1) / 2)),  # Blender's exporters
        ({"fl_x": 30, "camera_angle_x": 0.6}, (30, 30, (W - 1) / 2, (H - 1) / 2)),  # instant-ngp
        ({"fl_x": 30, "camera_angle_y": math.pi / 2, "cx": 20, "cy": 16}, (30, H / 2, 19.5, 15.5)),
        ({"camera_angle_x": "wide"}, r"transforms\.json: expected fl_x in pixels, or camera_angle_x"),
    ],
)
def test_a_nerf_leaves_out_what_follows_from_the_size_of_its_images(
    facts: dict[str, Any], camera: tuple[float, ...] | str, tmp_path: Path
) -> None:
    write_nerf(tmp_path)
    file = tmp_path / "transforms.json"
    frames = json.loads(file.read_text())["frames"]
    file.write_text(
        json.dumps({**facts, "frames": [{k: v for k, v in frame.items() if k != "cy"} for frame in frames]})
    )
    if isinstance(camera, str):
        with pytest.raises(DataError, match=camera):
            Recording(root=tmp_path)
        return
    fx, fy, cx, cy = camera
    np.testing.assert_allclose(Recording(root=tmp_path).read(0).intrinsics, [[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_images_without_depth_are_left_out_or_taken_and_counted(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    (missing,) = (
        path
        for path in tmp_path.rglob("*.png")
        if "depth" in str(path.relative_to(tmp_path)) and image_number(path) == 5
    )
    missing.unlink()
    data, every = (Recording(root=tmp_path, require_depth=need, camera=(40, 41, 15, 12)) for need in (True, False))
    assert len(data) == N - 1 and "images without a depth map: 1, left out; `require_depth: false`" in " ".join(
        data.facts
    )
    assert len(every) == N and "images without a depth map: 1, taken, too" in every.facts
    assert every.read(5).depth is None
    for i in (5, 4):
        np.testing.assert_allclose(every.read(i).pose, pose(i), atol=1e-6)
    np.testing.assert_allclose(data.read(5).pose, pose(6), atol=1e-6)


def image_number(path: Path) -> int:
    """The position in the walk that the number or time in a file's name stands for."""
    number = float(re.sub(r"[^0-9.]", "", path.stem).strip("."))
    return round((number - TIMES[0]) * 10) if number > 1e6 else int(number)


def test_a_frame_whose_pose_is_not_there_has_none(tmp_path: Path) -> None:
    for write, file in ((write_scannet, "pose/3.txt"), (write_frames, "frame-000003.pose.txt")):
        root = tmp_path / write.__name__
        write(root)
        (root / file).unlink()
        data = Recording(root=root)
        assert data.read(3).pose is None and "poses of 7 of 8 images;" in " ".join(data.facts)


def test_the_cameras_of_a_rig_of_nerfstudio_are_videos_of_their_own(tmp_path: Path) -> None:
    write_nerf(tmp_path)
    facts = json.loads((tmp_path / "transforms.json").read_text())
    right = [{**one, "file_path": f"right/{i}.png"} for i, one in enumerate(facts["frames"])]
    shutil.copytree(tmp_path / "images", tmp_path / "right")
    (tmp_path / "transforms.json").write_text(json.dumps({**facts, "frames": [*facts["frames"], *right]}))
    data = Recording(root=tmp_path)
    assert len(set(data.names)) == 2 * N
    for folder, frames in videos(data).items():
        assert [data.names[i] for i in frames] == [f"{folder}/{i}" for i in range(N)]
    assert len(videos(data)) == 2 and len(Recording(root=tmp_path, split="val").names) == 2


def test_frames_of_nerfstudio_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_nerf(tmp_path)
    facts = json.loads((tmp_path / "transforms.json").read_text())
    facts["frames"] = facts["frames"][::-1]
    (tmp_path / "transforms.json").write_text(json.dumps(facts))
    np.testing.assert_allclose(Recording(root=tmp_path).read(1).pose, pose(1), atol=1e-6)


def test_names_of_images_may_hold_spaces_and_lists_any_order(tmp_path: Path) -> None:
    write_tum(tmp_path)
    (tmp_path / "rgb").rename(tmp_path / "my rgb")
    lines = (tmp_path / "rgb.txt").read_text().replace(" rgb/", "  my rgb/").splitlines()
    (tmp_path / "rgb.txt").write_text("\n".join(lines[::-1]))
    data = Recording(root=tmp_path)
    assert len(data) == N and np.array_equal(data.read(1).image, image(1))


def test_sequences_of_two_units_are_refused(tmp_path: Path) -> None:
    for write in (write_tum, write_folders):
        write(tmp_path / write.__name__)
    with pytest.raises(
        DataError, match=r"several units of depth \(folders 1000, tum 5000 a metre\). Name those of one"
    ):
        Recording(root=tmp_path)
    assert len(Recording(root=tmp_path, sequences=("write_tum",))) == N


def test_check_data_looks_anew_at_depth_whose_unit_follows_from_another_layout(tmp_path: Path) -> None:
    write_tum(tmp_path / "walk")

    def median_depth() -> float:
        request = SplitToValidate("all", lambda: Recording(root=tmp_path / "walk"), tmp_path / "cache.json")
        summary = validate([request]).summaries[0]
        assert summary.depth is not None
        return summary.depth[1]

    first = median_depth()
    for name in ("rgb.txt", "depth.txt"):
        (tmp_path / "walk" / name).unlink()  # layout folders, in millimetres
    assert median_depth() == pytest.approx(5 * first)


@pytest.mark.parametrize(
    ("camera", "reason"),
    [
        ((80, 80, 32, 24), "the principal point (32, 24) lies outside this image of 24x32"),  # of one twice as large
        ((0.9, 1.2, 0.5, 0.5), "a field of view of 174 degrees across 32 pixels"),  # as shares of the size
    ],
)
def test_check_data_finds_a_camera_that_no_such_image_has_also_after_an_edit(
    tmp_path: Path, camera: tuple[float, ...], reason: str
) -> None:
    write_tum(tmp_path / "walk")

    def issues(*numbers: float) -> list[str]:
        tree = dict(zip(("fx", "fy", "cx", "cy"), numbers, strict=True))
        (tmp_path / "walk/intrinsics.json").write_text(json.dumps(tree))
        request = SplitToValidate("all", lambda: Recording(root=tmp_path / "walk"), tmp_path / "cache.json")
        return [issue.reason for issue in validate([request]).issues if issue.type == "camera"]

    assert issues(40, 40, 15.5, 11.5) == []
    found = issues(*camera)
    assert len(found) == N and all(reason in text for text in found)


def test_facts_say_why_a_trajectory_gives_no_pose(tmp_path: Path) -> None:
    for name, fact in (
        ("timed", "poses of 3 of 8 images (trajectory.txt: none within `max_gap`, 0.02 s)"),
        ("numbered", "poses of 0 of 8 images (trajectory.txt: matched by time, and the images' names are no times)"),
    ):
        root = tmp_path / name
        write_folders(root)
        lines = (root / "trajectory.txt").read_text().splitlines()
        (root / "trajectory.txt").write_text("\n".join(lines[::3]))
        for i, path in enumerate(sorted(root.glob("*/*.png")) if name == "numbered" else []):
            path.rename(path.with_name(f"{i % N:04d}.png"))
        assert fact in " ".join(Recording(root=root).facts)


def test_maps_are_matched_by_time_although_some_names_are_equal(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / f"depth/{TIMES[2] + 0.004:.6f}.png").rename(tmp_path / f"depth/{TIMES[2]:.6f}.png")
    assert len(Recording(root=tmp_path)) == N


def test_frames_of_which_a_phone_kept_no_image_are_passed_over(tmp_path: Path) -> None:
    """3D Scanner App writes depth and JSON of each frame, and only some images."""
    write_arkit(tmp_path)
    for i in range(N):
        if i % 3:
            (tmp_path / f"frame_{i:05d}.png").unlink()
    data = Recording(root=tmp_path)
    assert [name.rpartition("/")[2] for name in data.names] == ["frame_00000", "frame_00003", "frame_00006"]
    np.testing.assert_allclose(data.read(1).pose, pose(3), atol=1e-6)


def test_each_frame_of_stray_scanner_has_the_camera_in_its_row(tmp_path: Path) -> None:
    write_stray(tmp_path)
    head, *rows = (tmp_path / "odometry.csv").read_text().splitlines()
    rows = [f"{row}, {40 + i}, 41, 15, 12, , " for i, row in enumerate(rows)]
    head += ", fx, fy, cx, cy, distortion_center_x, distortion_center_y"
    (tmp_path / "odometry.csv").write_text("\n".join([head, *rows]))
    np.testing.assert_allclose(Recording(root=tmp_path).read(3).intrinsics, pinhole(43.0, 41.0, 15.0, 12.0))


def test_official_layouts_have_poses_of_their_own(tmp_path: Path) -> None:
    write_frames(tmp_path / "7/chess/seq-03")
    (tmp_path / "7/chess/TestSplit.txt").write_text("sequence3\n")
    write_scannet(tmp_path / "scannet/scene0000_00")
    (tmp_path / "scannet/scene0000_00/pose/2.txt").write_text(text(np.full((4, 4), -np.inf)))  # tracking was lost
    write_tum(tmp_path / "rgbd_dataset_freiburg3_walk")
    scenes, scannet = SevenScenes(root=tmp_path / "7"), Scannet(root=tmp_path / "scannet")
    tum = Tum(root=tmp_path / "rgbd_dataset_freiburg3_walk")
    assert scenes.names[1] == "chess/seq-03/frame-000001" and scenes.read(1).depth[-1, -1] == 0
    assert scannet.read(2).pose is None
    for data in (scenes, scannet, tum):
        np.testing.assert_allclose(data.read(3).pose, pose(3), atol=1e-6)
    assert np.array_equal(tum.read(0).intrinsics, CAMERAS["freiburg3"])


def test_frames_of_scannet_are_ordered_by_number_and_have_both_cameras(tmp_path: Path) -> None:
    write_scannet(tmp_path)
    for file in ("color/7.jpg", "depth/7.png", "pose/7.txt"):
        (tmp_path / file).rename(tmp_path / file.replace("7", "10"))
    (tmp_path / "intrinsic/intrinsic_depth.txt").write_text(text(np.diag([20.0, 21, 1, 1])))
    last = read_scannet(tmp_path, 0)[-1]
    assert last.name == "10" and np.array_equal(last.intrinsics, K)
    assert np.array_equal(last.depth_intrinsics, np.diag([20.0, 21, 1]))


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("1305031452.500000", 1305031452.5),
        ("1403636579763555584", 1403636579.763555584),  # EuRoC: nanoseconds
        ("1403636579763555", 1403636579.763555),
        ("1403636579763", 1403636579.763),
        ("000012", None),
    ],
)
def test_times_in_names_are_in_the_unit_that_their_digits_tell(name: str, time: float | None, tmp_path: Path) -> None:
    put_pair(tmp_path / f"rgb/{name}.png", tmp_path / f"depth/{name}.png", 0)
    assert read_folders(tmp_path, 0.02)[0].time == time


def test_tum_says_when_it_does_not_know_the_camera(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tum(tmp_path / "desk")
    assert Tum(root=tmp_path / "desk").read(0).intrinsics is None
    assert "camera=freiburg1" in caplog.text
    raw = Tum(root=tmp_path / "desk", camera="freiburg1", undistort=False)
    assert np.array_equal(raw.read(0).intrinsics, CAMERAS["freiburg1"])


def test_depth_of_a_second_camera_lies_where_both_cameras_see_it(tmp_path: Path) -> None:
    """A plane of points 2 m away, 12 x 16 from a wider lens: each pixel has the depth of the ray it shares."""
    small, other = (12, 16), pinhole(14.0, 14.0, 7.5, 5.5)
    x = backproject(np.ones(small), other)[..., 0]
    put(tmp_path / "images/0.png", image(0))
    put(tmp_path / "depths/0.png", np.rint(1000 * (2 + x)).astype(np.uint16))
    (tmp_path / "poses.csv").write_text("name,tx,ty,tz,qx,qy,qz,qw\n0.png,0,0,0,0,0,0,1\n")
    options = {"root": tmp_path, "camera": (40.0, 40.0, 15.5, 11.5), "val_fraction": 0.0}
    sample = Recording(**options, depth_camera=(14.0, 14.0, 7.5, 5.5)).read(0)
    ours = 2 + backproject(np.ones((H, W)), pinhole(*options["camera"]))[..., 0]
    assert np.abs(sample.depth - ours).max() <= 0.5 / 14 + 1e-3  # half a pixel of the depth map
    scaled = Recording(**options).read(0)
    assert np.array_equal(scaled.depth[::2, ::2], scaled.depth[1::2, 1::2])
    put(tmp_path / "depths/0.png", np.ones((12, 12), np.uint16))
    with pytest.raises(
        DataError,
        match="of another shape, and the camera of the depth map is not known; data set recording takes it as",
    ):
        Recording(**options).read(0)


def test_depth_alone_is_found_by_both_cameras_also_where_their_images_have_one_size(tmp_path: Path) -> None:
    put_pair(tmp_path / "images/0.png", tmp_path / "depths/0.png", 0)
    (tmp_path / "poses.csv").write_text("name,tx,ty,tz,qx,qy,qz,qw\n0.png,0,0,0,0,0,0,1\n")
    options = {"root": tmp_path, "camera": (40.0, 40.0, 15.5, 11.5), "val_fraction": 0.0}
    data = Recording(**options, depth_camera=(20.0, 20.0, 14.5, 11.5))
    np.testing.assert_array_equal(data.depth_map(0), data.read(0).depth)
    moved = Recording(**{**options, "camera": (40.0, 40.0, 16.5, 11.5)}, depth_camera=(20.0, 20.0, 14.5, 11.5))
    assert moved.version != data.version  # as after an edit of intrinsics.json, of which check-data's cache is to know


def test_val_is_the_end_of_each_sequence_behind_a_gap(tmp_path: Path) -> None:
    assert split_blocks(range(100), "val", 0.2) == [*range(80, 100)]
    assert split_blocks(range(100), "train", 0.2) == [*range(75)]
    assert split_blocks(range(3), "all", 0.2) == [0, 1, 2] and split_blocks(range(3), "val", 0.1) == [2]
    assert is_consecutive([f"a/{i:03d}" for i in range(20)]) and not is_consecutive([f"IMG{i}x" for i in range(20)])
    for i in range(20):
        put_pair(tmp_path / f"images/walk/{i}.png", tmp_path / f"depths/walk/{i}.png", i)
    splits = [
        [
            int(name.rpartition("/")[2])
            for name in Folder(root=tmp_path, depth_scale=1000, split=s, val_fraction=0.2).names
        ]
        for s in ("train", "val")
    ]
    assert splits == [[*range(15)], [16, 17, 18, 19]]


def test_val_is_the_end_of_each_folder_in_a_sequence(tmp_path: Path) -> None:
    """Two walks, or two cameras of one: a block of them all would be of the last alone, and in view of the first."""
    for i in range(40):
        name = f"{'ab'[i // 20]}/{i % 20}"
        put_pair(tmp_path / f"images/{name}.png", tmp_path / f"depths/{name}.png", i)
    (tmp_path / "poses.csv").write_text("name,tx,ty,tz,qx,qy,qz,qw\n")
    data = Recording(root=tmp_path, split="val", val_fraction=0.1)
    assert [name.partition("/")[2] for name in data.names] == ["a/18", "a/19", "b/18", "b/19"]


def test_the_camera_of_the_whole_recording_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for walk in "abc":
        put_pair(tmp_path / walk / "images/0.png", tmp_path / walk / "depths/0.png", 0)
        (tmp_path / walk / "poses.csv").write_text("name,tx,ty,tz,qx,qy,qz,qw\n0.png,0,0,0,0,0,0,1\n")
    read: list[Path] = []
    monkeypatch.setattr(recording, "camera_file", read.append)
    assert len(Recording(root=tmp_path, split="all")) == 3 and read.count(tmp_path) == 1


def test_poses_between_those_of_a_trajectory_are_interpolated(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("# time\n1 0 0 0 0 0 0 1\n2 2 0 0 0 0 0.70710678 0.70710678\n")
    found = poses_at(np.array([1.5, 2.03, 2.5]), *read_trajectory(tmp_path / "t.txt"), 0.5)
    expected = pose_of([1, 0, 0], [0, 0, np.sin(np.pi / 8), np.cos(np.pi / 8)])
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    assert found[1] is not None and poses_at(np.array([3.0]), np.array([1.0]), np.eye(4)[None], 0.5) == [None]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("groundtruth.txt", "1 2 3\n", r"groundtruth.txt:1: expected TIME TX TY TZ QX QY QZ QW, got '1 2 3'"),
        ("groundtruth.txt", "5 0 0 0 0 0 0 1\n", r"nowhere within 0.02 s of the images', which begin at 1305031452.5"),
        ("rgb.txt", "1305031452.5 ../../x.png\n", r"rgb.txt: expected names in the data set"),
        ("depth.txt", "now x.png\n", r"depth.txt:1: expected TIME FILE"),
    ],
)
def test_damaged_lists_are_named_with_their_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    write_tum(tmp_path / "walk")
    (tmp_path / "walk" / name).write_text(content)
    with pytest.raises(DataError, match=message):
        Recording(root=tmp_path)


@pytest.mark.parametrize(
    ("write", "file", "was", "now", "message"),
    [
        (write_stray, "camera_matrix.csv", "40.0", "-40.0", r"camera_matrix.csv: expected a camera .* fx 0 cx"),
        (write_scannet, "intrinsic/intrinsic_depth.txt", "41.0", "inf", r"intrinsic_depth.txt: expected a camera"),
        (write_arkit, "frame_00001.json", '"time": ', '"time": "noon", "x": ', r"a damaged recording .*noon"),
        (write_nerf, "transforms.json", '"timestamp": ', '"timestamp": [], "x": ', r"a damaged recording .*list"),
    ],
)
def test_cameras_and_times_that_cannot_be_are_refused(
    write: Callable[[Path], None], file: str, was: str, now: str, message: str, tmp_path: Path
) -> None:
    write(tmp_path / "walk")
    path = tmp_path / "walk" / file
    path.write_text(path.read_text().replace(was, now, 1))
    with pytest.raises(DataError, match=message):
        Recording(root=tmp_path)


def test_a_pose_that_is_no_rigid_motion_is_refused(tmp_path: Path) -> None:
    write_frames(tmp_path / "walk")
    rotation, row = "its upper left 3 x 3 numbers are no rotation", r"the last row of a pose is 0 0 0 1"
    wrong = ((2 * np.eye(4), rotation), (np.diag([1.0, 1.0, -1.0, 1.0]), rotation), (pose(1).T, row))
    for matrix, fault in wrong:  # of a scale, a mirror, and written column by column
        file = tmp_path / "walk/frame-000000.pose.txt"
        file.write_text(text(matrix))
        with pytest.raises(DataError, match=rf"frame-000000.pose.txt: {fault}"):
            Recording(root=tmp_path)
        with pytest.raises(DataError, match=rf"frame-000000.pose.txt: {fault}"):
            read_pose(file)  # of measured points
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no recording in a known layout"):
        Recording(root=tmp_path / "empty")


def test_check_data_finds_markers_and_folders_of_two_units(tmp_path: Path) -> None:
    for i in range(6):
        stored = np.rint(metres(i) * (1000 if i < 3 else 5000)).astype(np.uint16)
        stored[:, :2] = 60000  # 60 m
        put(tmp_path / f"images/{'ab'[i // 3]}/{i}.png", image(i))
        put(tmp_path / f"depths/{'ab'[i // 3]}/{i}.png", stored)

    def found(**options: object) -> dict[str, str]:
        splits = [SplitToValidate("all", lambda: Folder(root=tmp_path, depth_scale=1000, **options))]
        return {issue.type: issue.reason for issue in validate(splits).issues}

    assert "60 m (60000 as stored) fills 6." in found()["invalid_marker"]
    report = found(invalid=(60000,))
    assert "invalid_marker" not in report
    assert "4.9 times as much" in report["mixed_units"] and "'a'" in report["mixed_units"]


def test_init_takes_a_recording_for_what_it_is(here: Path) -> None:
    write_frames(here / "walk")
    (here / "walk/intrinsics.json").write_text('{"fx": 40, "fy": 41, "cx": 15, "cy": 12}')
    assert named_spec("walk")["type"] == "recording"
    text = init("walk")
    config = (here / "walk.yaml").read_text()
    assert "{type: recording, split: train}" in config and "5000" not in config
    assert "poses of 8 of 8 images; camera of 8 of them from intrinsics.json" in text
    splits = [SplitToValidate(s, lambda s=s: Recording(root=here / "walk", split=s)) for s in ("train", "val")]
    assert validate(splits).ok


def test_init_guesses_the_unit_of_maps_that_some_program_wrote(here: Path) -> None:
    """KITTI's PNGs hold 1/256 m, few pixels are measured, and 65535 is no depth."""
    write_table(here / "car")
    for i in range(N):
        measured = np.random.default_rng(i).random((H, W)) < 0.2
        stored = np.rint(256 * np.where(measured, np.linspace(60, 4, H)[:, None], 0)).astype(np.uint16)
        stored[0] = 65535
        put(here / f"car/depths/{i}.png", stored)
    facts = look_at_folder(here / "car")
    assert (
        facts.depth_scale == 256 and facts.depth_metres is not None and facts.depth_metres[2] == pytest.approx(60, 0.1)
    )
    assert "check    data.depth_scale: few pixels are measured, as in KITTI's PNGs" in init("car")
    assert "depth_scale: 256 # stored units per metre; a guess" in (here / "car.yaml").read_text()
    write_frames(here / "walk")
    assert look_at_folder(here / "walk").depth_scale is None  # the layout says it


def test_init_writes_where_its_name_says(here: Path) -> None:
    write_folders(here / "walk")
    (here / "configs").mkdir()
    assert "written  configs/mine.yaml" in init("configs/mine", root="walk")
    assert (here / "configs/mine.yaml").is_file()
    assert "written  walk.yaml" in init(here / "walk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here / "walk")
        assert "written  walk.yaml" in init(".")


def test_init_names_a_damaged_image_and_what_lists_all(tmp_path: Path) -> None:
    write_frames(tmp_path / "my walk")
    (tmp_path / "my walk/frame-000003.color.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(
        DataError, match=r"frame-000003.color.png: .* `densevit check-data '.*/my walk'` lists all such"
    ):
        init("walk", root=tmp_path / "my walk")


def test_init_goes_on_without_images_that_a_list_names_and_the_folder_lacks(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tum(here / "walk")
    (here / f"walk/rgb/{TIMES[2]:.6f}.png").unlink()
    assert "6 to train, 1 to validate" in init("walk") and "1 of 8 samples lack a file" in caplog.text
    assert "{type: recording, subset: available, split: train}" in (here / "walk.yaml").read_text()


def test_a_folder_named_like_a_data_set_is_named_beside_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tum").mkdir()
    assert named_spec("tum") == {"type": "tum"}
    assert "tum is the data set of that name; for the folder here say ./tum" in capsys.readouterr().err
    assert named_spec("./tum")["root"] == str(here / "tum")


@pytest.mark.parametrize(("name", "needs"), [("folder", "--root FOLDER"), ("huggingface", "--data-options path=VALUE")])
def test_a_data_set_that_cannot_do_without_a_folder_or_an_option_says_how_to_give_it(name: str, needs: str) -> None:
    with pytest.raises(ConfigError, match=f"--data {name}: needs {needs}"):
        named_spec(name)


def test_frames_without_depth_are_taken_where_they_are_asked_for(tmp_path: Path) -> None:
    write_table(tmp_path)
    shutil.rmtree(tmp_path / "depths")
    with pytest.raises(DataError, match=r"no frame of 'all' has depth; `require_depth: false`"):
        Recording(root=tmp_path)
    sample = Recording(root=tmp_path, require_depth=False, camera=(5, 5, 2.5, 1.5)).read(1)
    assert sample.depth is None and sample.pose is not None and sample.intrinsics is not None


@pytest.mark.parametrize(("write", "name"), [(write_arkit, "conf_00002.png"), (write_stray, "confidence/000002.png")])
def test_depth_of_low_confidence_is_not_measured(write: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    """ARKit's confidence is 0 (low), 1 or 2; loggers write it beside the depth map, at its size."""
    write(tmp_path)
    confidence = np.arange(H * W, dtype=np.uint8).reshape(H, W) % 3
    put(tmp_path / name, confidence)
    data = Recording(root=tmp_path, camera=(40, 41, 15, 12))
    plain, rated = data.read(1), data.read(2)
    assert plain.depth is not None and rated.depth is not None and plain.valid is not None
    truth = metres(2)
    truth[-1, -1] = 0  # stored 65535
    np.testing.assert_allclose(rated.depth, np.where(confidence > 0, truth, 0), atol=1e-3)
    assert np.array_equal(rated.valid, rated.depth > 0) and plain.valid.sum() == (metres(1) > 0).sum() - 1
    np.testing.assert_array_equal(data.depth_map(2), rated.depth)
    assert "confidence of 1 depth maps; where it is 0 (low), depth is not measured" in data.facts
    put(tmp_path / name, confidence[::2])
    with pytest.raises(DataError, match=f"{name}: 12 x 32 .h x w., while the depth map is 24 x 32"):
        data.read(2)
