"""WebDataset's shards give the samples that the same files give in a folder."""

import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest
from layouts import opened
from small import small_folder
from tar_files import pack

from densevit.data.datasets.base import Dataset
from densevit.errors import DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Six samples in two shards, a third of whose files is something else."""
    folder = small_folder(tmp_path / "plain")
    for shard in range(2):
        files = {}
        for i in range(3 * shard, 3 * shard + 3):
            files[f"room/{i:03d}.jpg"] = (folder / f"images/{i:03d}.jpg").read_bytes()
            files[f"room/{i:03d}.depth.png"] = (folder / f"depths/{i:03d}.png").read_bytes()
            files[f"room/{i:03d}.json"] = b"{}"
        pack(tmp_path / f"shard-{shard:06d}.tar", files)
    return tmp_path


def open_tar(root: Path, **options: object) -> Dataset:
    return opened("webdataset", root, **{"depth_scale": 1000, **options})


def test_samples_are_those_of_the_folder(root: Path) -> None:
    shards = open_tar(root)
    plain = opened("folder", root / "plain", depth_scale=1000)
    assert list(shards.names) == [f"room/{i:03d}" for i in range(6)]
    assert shards.scene(0) == "room"
    for i in (0, 5):
        a, b = pickle.loads(pickle.dumps(shards)).read(i), plain.read(i)  # as in a worker process
        assert np.array_equal(a.image, b.image)
        assert np.array_equal(a.depth, b.depth)
        assert np.array_equal(a.valid, b.valid)


def test_65535_is_not_measured_as_in_a_folder(root: Path) -> None:
    stored = np.full((60, 80), 2000, np.uint16)
    stored[:20], stored[20:40] = 65535, 60000
    photo = (root / "plain/images/000.jpg").read_bytes()
    depth = cv2.imencode(".png", stored)[1].tobytes()
    pack(root / "shard-000002.tar", {"room/9.jpg": photo, "room/9.depth.png": depth})
    for named, unmeasured in (({}, 65535), ({"invalid": [60000]}, 60000)):
        np.testing.assert_array_equal(open_tar(root, **named).read(6).valid, stored != unmeasured)


def test_a_root_may_have_brackets_in_its_name_and_images_alone_may_be_asked_for(root: Path) -> None:
    data = open_tar(root.rename(root.with_name("[2024] mine")), depth=None)
    assert len(data) == 6 and data.read(3).image.shape == (60, 80, 3) and data.read(3).depth is None


def test_samples_without_a_part_are_refused_or_left_out(root: Path) -> None:
    pack(root / "shard-000002.tar", {"room/9.jpg": b"..."})
    with pytest.raises(DataError, match=r"1 of 7 samples lack a part:\n  room/9: no depth; it has jpg"):
        open_tar(root)
    assert len(open_tar(root, subset="available")) == 6


def test_a_sample_in_two_shards_and_a_pattern_without_shards_are_errors(root: Path) -> None:
    pack(root / "shard-000002.tar", {"room/000.jpg": b"..."})
    for shards, told in (
        ("*.tar", "'room/000' is in two"),
        ("none-*.tar", "matches no archive"),
        ("../*", "leads out"),
    ):
        with pytest.raises(DataError, match=told):
            open_tar(root, shards=shards)


def test_braces_are_spelled_out_and_each_shard_must_be_there(root: Path) -> None:
    assert len(open_tar(root, shards="shard-{000000..000001}.tar")) == 6
    assert len(open_tar(root, shards="shard-{000001,000000}.tar")) == 6
    assert len(open_tar(root, shards="{shard,sha*d}-{000001..000001}.tar")) == 3
    with pytest.raises(DataError, match=r"shard-000002\.tar: matches no archive"):
        open_tar(root, shards="shard-{000000..000002}.tar")


def test_a_depth_map_is_never_taken_for_the_image(tmp_path: Path) -> None:
    pack(tmp_path / "shard.tar", {"a.jpg": b"...", "a.png": b"...", "b.png": b"..."})
    with pytest.raises(DataError, match=r"1 of 2 samples lack a part:\n  b: no image; it has png"):
        open_tar(tmp_path, depth="png")


def test_two_spellings_of_one_part_and_shards_without_files_are_refused(tmp_path: Path) -> None:
    pack(tmp_path / "shard.tar", {"a.JPG": b"...", "a.jpg": b"...", "a.depth.png": b"..."})
    with pytest.raises(DataError, match=r"holds 'a\.JPG' and 'a\.jpg', which are one part"):
        open_tar(tmp_path)
    pack(tmp_path / "shard.tar", {})
    with pytest.raises(DataError, match=r"no file; a sample is NAME\.jpg, NAME\.depth\.png\."):
        open_tar(tmp_path)


def test_a_damaged_picture_is_named_with_its_shard(root: Path) -> None:
    (root / "bad").mkdir()
    pack(root / "bad/shard.tar", {"a.jpg": b"\xff\xd8\xff rest"})
    with pytest.raises(DataError, match=r"shard\.tar/a\.jpg"):
        open_tar(root / "bad", depth=None).read(0)
