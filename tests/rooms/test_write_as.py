"""The door `datasets/prepare_rooms.py`, and rooms in the layouts of real data sets, checked without our readers."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import cv2
import h5py
import layouts
import numpy as np
import pytest
from photo_samples import sample

pytest.importorskip("embreex")

from densevit.data.datasets.depth.kitti import Kitti
from densevit.data.datasets.depth.nyu.dataset import Nyu
from densevit.errors import DataError
from densevit_rooms import render_scene
from densevit_rooms.layouts import FOV, write_as

DOOR = Path(__file__).parents[2] / "datasets" / "prepare_rooms.py"


def prepare(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Runs the door in this process and returns its exit code."""
    monkeypatch.setattr(sys, "argv", [str(DOOR), *arguments])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(DOOR), run_name="__main__")
    return left.value.code


def test_help_imports_no_library() -> None:
    command = [sys.executable, "-X", "importtime", str(DOOR), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--train-scenes" in done.stdout
    assert not re.search(r"\b(torch|numpy|scipy|densevit)\b", done.stderr), done.stderr


def test_it_makes_what_it_was_asked_for_and_refuses_the_rest_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "rooms")
    few = ("--train-scenes", "1", "--val-scenes", "0", "--test-scenes", "0", "--frames", "1", "--size", "16x24")
    assert prepare(monkeypatch, "--root", root, *few) == 0
    assert cv2.imread(str(tmp_path / "rooms/train/scene_00000/rgb_00.jpg")).shape == (16, 24, 3)
    assert prepare(monkeypatch, "--root", root, *few, "--seed", "1") == 2
    assert "another data set" in capsys.readouterr().err
    assert prepare(monkeypatch, "--root", root, "--size", "16") == 2
    assert "height x width" in capsys.readouterr().err


@pytest.mark.slow
def test_the_nyu_reader_reads_rooms_in_the_nyu_folders(tmp_path: Path) -> None:
    write_as("nyu", tmp_path / "nyu", {"train": 1, "val": 1}, frames=1, progress=False)
    (sample,) = (frame.sample for frame in render_scene(0, "train", 0, 1, (480, 640), fov=FOV["nyu"]))
    listed = tmp_path / "nyu" / "nyu_sync_train.txt"
    read = Nyu(root=tmp_path / "nyu", source="sync", split="train", list_file=listed, border="keep").read(0)
    assert np.abs(read.depth - sample.depth).max() <= 0.5e-3 + 1e-6  # millimetres in 16 bits
    assert sample.intrinsics[0, 0] == pytest.approx(518.86, abs=0.2)  # type: ignore[index]


@pytest.mark.slow
def test_the_kitti_reader_reads_rooms_in_the_kitti_folders(tmp_path: Path) -> None:
    write_as("kitti", tmp_path / "kitti", {"train": 1}, frames=1, progress=False)
    (sample,) = (frame.sample for frame in render_scene(0, "train", 0, 1, (375, 1242), fov=FOV["kitti"]))
    (listed,) = (tmp_path / "kitti").glob("kitti_*.txt")
    read = Kitti(root=tmp_path / "kitti", list_file=listed, split="train", crop="none").read(0)
    assert read.depth.shape == (375, 1242)
    assert np.abs(read.depth - sample.depth).max() <= 0.5 / 256 + 1e-6
    assert np.allclose(read.intrinsics, np.asarray(sample.intrinsics), rtol=1e-5)


def test_other_layouts_want_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DataError, match="not an empty folder"):
        write_as("nyu", tmp_path, {"train": 1}, progress=False)


def test_the_labelled_mat_has_matlab_axes_header_and_types(tmp_path: Path) -> None:
    frames = [sample(f"kitchen/{i}", shift=20 * i) for i in range(3)]
    layouts.write_nyu_labeled(tmp_path / "a.mat", frames, classes=("wall", "floor", "bed", "chair"))
    assert (tmp_path / "a.mat").read_bytes()[:10] == b"MATLAB 7.3"
    with h5py.File(tmp_path / "a.mat", "r") as file:
        assert file.userblock_size == 512
        shapes = {key: (file[key].shape, file[key].dtype) for key in ("images", "rawDepths", "depths", "labels")}
        assert shapes == {
            "images": ((3, 3, 640, 480), np.uint8),
            "rawDepths": ((3, 640, 480), np.float32),
            "depths": ((3, 640, 480), np.float32),
            "labels": ((3, 640, 480), np.uint16),
        }
        assert file["images"][1, 2, 600, 100] == frames[1].image[100, 600, 2]
        assert file["rawDepths"][1, 600, 100] == frames[1].depth[100, 600]
        assert file["sceneTypes"].shape == (1, 3)
        assert bytes(file[file["sceneTypes"][0, 0]][()].astype(np.uint8).ravel()) == b"kitchen"


def test_filling_takes_the_nearest_depth_and_keeps_what_is_there() -> None:
    depth = np.array([[1, 0, 0, 0, 5]], np.float32).repeat(5, axis=0)
    filled = layouts.fill(depth)
    np.testing.assert_array_equal(filled[:, [0, 1, 3, 4]], np.array([[1, 1, 5, 5]]).repeat(5, axis=0))
    assert not layouts.fill(np.zeros((3, 4), np.float32)).any()


def test_nyu_folders_are_jpegs_and_millimetres(tmp_path: Path) -> None:
    frame = sample("kitchen_0001/rgb_00045")
    listed = layouts.write_nyu_sync(tmp_path, [frame])
    assert listed.read_text() == "/kitchen_0001/rgb_00045.jpg /kitchen_0001/sync_depth_00045.png 518.8579\n"
    stored = cv2.imread(str(tmp_path / "sync/kitchen_0001/sync_depth_00045.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16
    np.testing.assert_array_equal(stored, np.rint(frame.depth.astype(float) * 1000))
    assert (tmp_path / "sync/kitchen_0001/rgb_00045.jpg").read_bytes()[:3] == b"\xff\xd8\xff"


def test_a_kitti_drive_has_the_published_paths_and_256ths_of_a_metre(tmp_path: Path) -> None:
    frame = sample("0000000005", 375, 1242)
    listed = layouts.write_kitti(tmp_path, [frame], date="2011_09_28", drive=2)
    drive = "2011_09_28_drive_0002_sync"
    image, depth, _ = listed.read_text().split()
    assert image == f"2011_09_28/{drive}/image_02/data/0000000005.png"
    assert depth == f"{drive}/proj_depth/groundtruth/image_02/0000000005.png"
    truth = tmp_path / "data_depth_annotated/train" / drive / "proj_depth/groundtruth/image_02/0000000005.png"
    stored = cv2.imread(str(truth), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(stored, np.rint(frame.depth.astype(float) * 256))
    assert "P_rect_02: 5.000000e+02" in (tmp_path / "raw/2011_09_28/calib_cam_to_cam.txt").read_text()


def test_depth_that_sixteen_bits_cannot_hold_is_written_as_none() -> None:
    png = layouts.encode_depth(np.array([[300.0, 1.0, np.nan, np.inf, -2.0]], np.float32), 256.0)
    stored = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(stored, [[0, 256, 0, 0, 0]])
