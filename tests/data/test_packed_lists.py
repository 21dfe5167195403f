"""Long lists of samples: packed in arrays, and kept in the user's cache as long as their folder stays as it was."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small import small_folder
from tar_files import pack

from densevit.data.datasets import folder, webdataset
from densevit.data.datasets.base import dataset_fingerprint
from densevit.data.datasets.folder import Folder
from densevit.data.datasets.webdataset import WebDataset
from densevit.data.index import packed
from densevit.data.index.packed import PackedSamples
from densevit.data.index.paths import SampleFiles, collect_missing
from densevit.errors import DataError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was left alone for a minute."""
    monkeypatch.setattr(packed, "PACKED_FROM", 1)
    monkeypatch.setenv("DENSEVIT_CACHE", str(tmp_path / "cache"))
    return rested(small_folder(tmp_path / "data"))


def rested(root: Path) -> Path:
    for path, _, _ in os.walk(root):
        os.utime(path, ns=(0, (before := Path(path).stat().st_mtime_ns) and before - 60 * 10**9))
    return root


def unlisted(*_: Any, **__: Any) -> None:
    pytest.fail("lists the files again")


def open_folder(root: Path, **options: Any) -> Folder:
    return Folder(root=root, depth_scale=1000, **options)


def test_a_packed_list_is_that_of_the_files_with_their_fields(tmp_path: Path) -> None:
    camera = np.eye(3)
    root = tmp_path / "räume"
    samples = [
        SampleFiles(f"a/ü{i}", root / f"i/a/ü{i}.jpg", None if i == 2 else root / f"d/a/ü{i}.png", intrinsics=camera)
        for i in range(4)
    ]
    some = PackedSamples.of(samples)
    assert some is not None and some.names[1:] == ["a/ü1", "a/ü2", "a/ü3"] and some[-1].name == "a/ü3"
    for one, other in zip(some, samples, strict=True):
        assert (one.name, one.paths()) == (other.name, other.paths()) and one.intrinsics is camera
    assert PackedSamples.of([*samples, SampleFiles("b", root, intrinsics=np.eye(3))]) is None


def test_folders_that_hold_each_other_by_links_are_listed_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for link, target in (("a/b", "b"), ("b/a", "a"), ("a/self", "a"), ("a/up", ".")):
        (tmp_path / link).symlink_to(tmp_path / target)
    assert sorted(packed.folders_below(tmp_path / "a")) == [f"{tmp_path}/a{x}" for x in ("", "/b", "/up", "/up/b")]


def test_it_is_opened_again_without_listing_files_and_is_the_same(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"split": "val", "val_fraction": 0.4}
    monkeypatch.setattr(packed, "PACKED_FROM", 100)
    plain = open_folder(data, **options)
    monkeypatch.setattr(packed, "PACKED_FROM", 1)
    open_folder(data, **options)
    monkeypatch.setattr(folder, "find_samples", unlisted)
    again = open_folder(data, **options)
    assert isinstance(again.samples, PackedSamples) and list(again.names) == plain.names
    assert [files.paths() for files in again.samples] == [files.paths() for files in plain.samples]
    assert dataset_fingerprint(again) == dataset_fingerprint(plain) and again.facts == plain.facts
    assert (again.read(0).depth == plain.read(0).depth).all()


def test_the_things_of_a_folder_with_segments_are_those_of_its_first_opening(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "classes.txt").write_text("floor\nbox\n")
    for kind, value in (("labels", 1), ("segments", 7)):
        (data / kind).mkdir()
        for path in (data / "images").iterdir():
            Image.fromarray(np.full((60, 80), value, np.uint8)).save(data / f"{kind}/{path.stem}.png")
    rested(data)
    first = open_folder(data)
    monkeypatch.setattr(folder, "find_samples", unlisted)
    again = open_folder(data)
    assert list(again.things) == list(first.things) == [0, 1]
    for opened in (first, again):
        assert opened.read(0).segment_crowd.tolist() == [False]


def test_a_long_folder_has_the_gaps_and_the_camera_of_a_short_one(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "depths/001.png").rename(data / "depths/depth_002.png")
    (data / "depths/002.png").unlink()
    (data / "intrinsics.json").write_text('{"fx": 9, "fy": 9, "cx": 3, "cy": 3}')
    monkeypatch.setenv("DENSEVIT_CACHE", "off")
    lists = []
    for most, require in ((1, False), (100, False), (1, True), (100, True)):
        monkeypatch.setattr(packed, "PACKED_FROM", most)
        subset = "available" if require else "full"
        found = open_folder(data, require_depth=require, subset=subset)
        assert isinstance(found.samples, PackedSamples) == (most == 1) and found.samples[0].intrinsics is not None
        lists.append([(files.name, files.paths()) for files in found.samples])
    assert lists[0] == lists[1] and lists[2] == lists[3] and len(lists[0]) == len(lists[2]) + 1
    (data / "images/000.jpg").unlink()
    (data / "images/000.jpg").symlink_to("nothing.jpg")
    monkeypatch.setattr(packed, "PACKED_FROM", 1)
    with pytest.raises(DataError, match=r"1 of \d+ samples lack a file:\n.*000\.jpg"):
        open_folder(data, require_depth=False)


@pytest.mark.parametrize("change", ["new", "gone", "moved", "camera"])
def test_it_is_listed_again_when_the_folder_has_changed(data: Path, change: str) -> None:
    open_folder(data)
    first = data / "images/000.jpg"
    if change == "new":
        (data / "images/900.jpg").write_bytes(first.read_bytes())
        (data / "depths/900.png").write_bytes((data / "depths/000.png").read_bytes())
        assert "900" in open_folder(data).names
    elif change == "camera":
        (data / "intrinsics.json").write_text('{"fx": 9, "fy": 9, "cx": 3, "cy": 3}')
        assert open_folder(data).samples[0].intrinsics is not None
    else:
        first.unlink() if change == "gone" else first.rename(first.with_name("x.jpg"))
        with pytest.raises(DataError, match="no image for 1 of the files of `depths`"):
            open_folder(data)


def test_what_changes_at_the_moment_or_is_being_checked_is_not_taken_from_the_cache(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "images/000.jpg").touch()
    os.utime(data / "images")
    open_folder(data)
    assert not list((tmp_path / "cache").rglob("*.json"))
    open_folder(rested(data))
    assert list((tmp_path / "cache").rglob("*.json"))
    monkeypatch.setattr(folder, "find_samples", unlisted)
    with collect_missing(), pytest.raises(BaseException, match="lists the files again"):
        open_folder(data)
    for array in (tmp_path / "cache").rglob("*.npy"):
        array.write_bytes(b"")
    with pytest.raises(BaseException, match="lists the files again"):
        open_folder(data)


def test_the_headers_of_shards_are_read_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root := tmp_path / "tar").mkdir()
    for shard, names in enumerate((["000", "001"], ["002"])):
        files = {f"a/{n}.JPG": (data / f"images/{n}.jpg").read_bytes() for n in names}
        files |= {f"a/{n}.depth.png": (data / f"depths/{n}.png").read_bytes() for n in names}
        pack(root / f"{shard}.tar", files)
        os.utime(root / f"{shard}.tar", (0, 0))
    first = WebDataset(root=rested(root), depth_scale=1000)
    monkeypatch.setattr(webdataset, "list_members", unlisted)
    again = WebDataset(root=root, depth_scale=1000)
    assert list(again.names) == ["a/000", "a/001", "a/002"]
    for i in range(3):
        assert again.members(i) == first.members(i) and (again.read(i).image == first.read(i).image).all()
    os.utime(root / "1.tar", (9, 9))
    with pytest.raises(BaseException, match="lists the files again"):
        WebDataset(root=root, depth_scale=1000)
