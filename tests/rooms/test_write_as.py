"""The door `datasets/prepare_rooms.py`, and rooms in the layouts of real data sets."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

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
