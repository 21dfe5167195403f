"""The reader of `rooms`, and the data set as `generate` writes it: small scenes, made here."""

import json
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from small import contents

pytest.importorskip("embreex")

from densevit.data.datasets.rooms import DEPTH_SCALE, Rooms
from densevit.errors import DataError
from densevit.ops.geometry import field_of_view
from densevit_rooms import generate, render_scene

SIZE = (24, 32)
SCENES = {"train": 2, "val": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "rooms"
    generate(root, SCENES, 2, SIZE, seed=3, progress=False)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "rooms")


def test_what_is_read_is_what_was_rendered(root: Path) -> None:
    data = Rooms(root=root)
    assert list(data.names) == [f"train/scene_0000{scene}/0{frame}" for scene in (0, 1) for frame in (0, 1)]
    for index, frame in enumerate(render_scene(3, "train", 1, 2, SIZE), start=2):
        read, made = data.read(index), frame.sample
        assert read.name == made.name
        # Rounding to units of 1 / 5000 m moves a depth by half a unit at most (and a float32 of 10 m by 1e-6).
        assert np.abs(read.depth - made.depth).max() <= 0.5 / DEPTH_SCALE + 1e-6
        assert read.valid.all()
        assert np.array_equal(read.labels, made.labels)  # type: ignore[arg-type]
        assert np.array_equal(read.intrinsics, made.intrinsics)  # type: ignore[arg-type]
        # JPEG at quality 95: a few grey levels on the mean.
        assert np.abs(read.image.astype(int) - made.image.astype(int)).mean() < 8
        stored = cv2.imread(str(root / "train/scene_00001" / f"instances_0{index - 2}.png"), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(stored, frame.instances)


def test_fields_of_view_views_and_normals_are_written_and_read(tmp_path: Path) -> None:
    root = tmp_path / "wide"
    options = {"fov": (25.0, 110.0), "views": 2, "normals": True}
    generate(root, {"train": 3}, 1, SIZE, seed=3, progress=False, **options)  # type: ignore[arg-type]
    data = Rooms(root=root)
    assert data.views == 2 and list(data.names)[:2] == ["train/scene_00000/00", "train/scene_00000/01"]
    angles = [field_of_view(SIZE[1], data.read(i).intrinsics[0, 0]) for i in range(6)]  # type: ignore[index]
    assert min(angles) >= 25 and max(angles) <= 110 and max(angles) - min(angles) > 20
    frames = render_scene(3, "train", 0, 1, SIZE, fov=(25.0, 110.0), views=2)
    for index, frame in enumerate(frames):
        read, made = data.read(index), frame.sample
        assert np.abs(read.normals - made.normals).max() < 1e-4
        assert np.array_equal(read.pose, made.pose)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"another data set .*fov \[25"):
        generate(root, {"train": 3}, 1, SIZE, seed=3, progress=False)


@pytest.mark.parametrize("mount, height", [("level", 0.4), ("robot", 1.4)])
def test_cameras_of_a_mount_keep_its_height_and_pitch_in_further_views_too(mount: str, height: float) -> None:
    for frame in render_scene(3, "train", 0, 2, SIZE, mount=mount, views=3):
        pose = frame.sample.pose
        assert pose[2, 3] == pytest.approx(height, abs=0.1)
        assert np.arcsin(pose[2, 2]) == pytest.approx(0 if mount == "level" else -0.25, abs=0.05)


def test_without_these_options_nothing_is_written_but_what_always_was(made: Path) -> None:
    # Whoever has a data set of an older version can go on with it.
    names = {path.name for path in (made / "train/scene_00000").iterdir()}
    assert {name.split("_")[0] for name in names} == {"rgb", "depth", "labels", "instances", "intrinsics.json"}
    meta = json.loads((made / "dataset.json").read_text())
    assert list(meta) == ["version", "seed", "size", "frames", "mount", "depth_scale", "classes", "scenes"]
    read = Rooms(root=made).read(0)
    assert read.normals is None and read.pose is None


def test_limit_takes_the_first_frames_and_splits_have_their_own(root: Path) -> None:
    assert len(Rooms(root=root, limit=3)) == 3
    val = Rooms(root=root, split="val")
    assert val.names[0] == "val/scene_00000/00"
    assert not np.array_equal(val.read(0).image, Rooms(root=root).read(0).image)


def test_an_interrupted_generation_is_finished_to_the_same_bytes(root: Path) -> None:
    whole = contents(root)
    shutil.rmtree(root / "train/scene_00000")
    with pytest.raises(DataError, match="1 of 2 'train' scenes are missing, train/scene_00000"):
        Rooms(root=root)
    untouched = (root / "train/scene_00001/depth_00.png").stat().st_mtime_ns
    generate(root, SCENES, 2, SIZE, seed=3, progress=False)
    assert contents(root) == whole
    assert (root / "train/scene_00001/depth_00.png").stat().st_mtime_ns == untouched


def test_more_scenes_are_added_to_those_there(root: Path) -> None:
    before = contents(root)
    generate(root, {**SCENES, "test": 1}, 2, SIZE, seed=3, progress=False)
    after = contents(root)
    assert all(after[name] == data for name, data in before.items() if name != "dataset.json")
    assert len(Rooms(root=root, split="test")) == 2


@pytest.mark.parametrize("change", [{"seed": 4}, {"frames": 1}, {"size": (24, 40)}, {"scenes": {"train": 1}}])
def test_another_data_set_is_not_written_into_one_that_stands(root: Path, change: dict[str, object]) -> None:
    before = contents(root)
    wanted = {"scenes": SCENES, "frames": 2, "size": SIZE, "seed": 3, "progress": False, **change}
    with pytest.raises(DataError, match=f"another data set .*{next(iter(change))}.*--overwrite"):
        generate(root, **wanted)  # type: ignore[arg-type]
    assert contents(root) == before


def test_overwrite_replaces_our_files_and_no_others(root: Path) -> None:
    (root / "notes.txt").write_text("mine")
    generate(root, {"val": 1}, 1, (16, 16), seed=9, overwrite=True, progress=False)
    assert (root / "notes.txt").read_text() == "mine"
    assert not list(root.glob("train/scene_*"))
    assert Rooms(root=root, split="val").read(0).image.shape == (16, 16, 3)


def test_a_folder_of_other_things_is_left_alone_even_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="no `rooms` data set"):
        generate(tmp_path, SCENES, 1, SIZE, overwrite=True, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scenes": {"train": 0}}, "at least one split"),
        ({"scenes": {"train": -1, "val": 1}}, "none less than 0"),
        ({"scenes": {"training": 1}}, "no split training"),
        ({"frames": 0}, "1 to 100"),
        ({"size": (4, 32)}, "4x32"),
        ({"seed": -1}, "seed -1"),
        ({"workers": 0}, "0 workers"),
        ({"views": 0}, "0 views"),
        ({"frames": 60, "views": 2}, "60 frames per scene of 2 views"),
        ({"baseline": (1.0, 2.0)}, "give --views 2"),
        ({"views": 2, "baseline": (2.0, 1.0)}, "baseline 2 to 1"),
        ({"views": 2, "baseline": (0.0, 1.0)}, "baseline 0 to 1"),
        ({"fov": (110.0, 25.0)}, "fov 110 to 25"),
        ({"fov": (25.0, 170.0)}, "between 5 and 150 degrees"),
    ],
)
def test_numbers_without_sense_are_refused_before_anything_is_written(
    tmp_path: Path, wrong: dict[str, object], said: str
) -> None:
    arguments = {"scenes": SCENES, "frames": 1, "size": SIZE, "progress": False, **wrong}
    with pytest.raises(DataError, match=said):
        generate(tmp_path / "rooms", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "rooms").exists()


def test_without_embreex_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "embreex.rtcore_scene", None)  # import then raises ImportError
    with pytest.raises(DataError, match=r"pip install 'densevit\[rooms\]'"):
        generate(tmp_path / "rooms", SCENES, 1, SIZE, progress=False)
    assert not (tmp_path / "rooms").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 99}', "\x00"])
def test_a_broken_description_is_a_data_error_with_its_path(root: Path, text: str) -> None:
    (root / "dataset.json").write_text(text)
    with pytest.raises(DataError, match=r"dataset\.json"):
        Rooms(root=root)


def test_a_broken_frame_is_a_data_error_with_its_path(root: Path) -> None:
    data = Rooms(root=root)
    (root / "train/scene_00000/depth_00.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"depth_00\.png"):
        data.read(0)
    (root / "train/scene_00001/intrinsics.json").write_text("[]")
    with pytest.raises(DataError, match=r"intrinsics\.json"):
        data.read(2)


def test_a_root_that_is_not_there_and_one_that_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data at"):
        Rooms(root=tmp_path / "nowhere")
    with pytest.raises(DataError, match="no `rooms` data set"):
        Rooms(root=tmp_path)
    with pytest.raises(DataError, match="no 'test' scenes"):
        generate(tmp_path / "rooms", {"train": 1}, 1, (16, 16), progress=False)
        Rooms(root=tmp_path / "rooms", split="test")


@pytest.mark.slow
def test_workers_change_nothing(made: Path, tmp_path: Path) -> None:
    generate(tmp_path / "rooms", SCENES, 2, SIZE, seed=3, workers=2, progress=False)
    assert contents(tmp_path / "rooms") == contents(made)
