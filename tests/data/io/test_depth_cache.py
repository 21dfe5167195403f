"""Decoded ground truth kept on disk: the same numbers, and never those of a file that has changed since."""

import os
from pathlib import Path

import numpy as np
import pytest
from layouts.folder import write_folder
from photo_samples import photo

from densevit.data.datasets.folder import Folder
from densevit.data.io import readers
from densevit.data.io.readers import DepthCache, read_depth
from densevit.data.io.writers import encode_depth


@pytest.fixture
def depth_file(tmp_path: Path) -> Path:
    depth = photo().depth
    return write(tmp_path / "depth.png", np.ascontiguousarray(depth[:60, :80]))


def write(path: Path, depth: np.ndarray) -> Path:
    path.write_bytes(encode_depth(depth, 1000))
    return path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were decoded."""
    seen: list[Path] = []
    decode = readers.read_depth
    monkeypatch.setattr(
        readers, "read_depth", lambda path, *args, **options: seen.append(path) or decode(path, *args, **options)
    )
    return seen


def test_a_map_is_decoded_once_and_comes_back_the_same(depth_file: Path, tmp_path: Path, decoded: list[Path]) -> None:
    plain = read_depth(depth_file, 1000)
    for _ in range(3):
        np.testing.assert_array_equal(DepthCache(tmp_path / "kept").read(depth_file, 1000), plain)
    assert decoded == [depth_file]
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_another_unit_or_another_content_is_decoded_anew(depth_file: Path, tmp_path: Path) -> None:
    cache = DepthCache(tmp_path / "kept")
    metres = cache.read(depth_file, 1000)
    np.testing.assert_allclose(cache.read(depth_file, 500), metres * 2, rtol=1e-6)
    write(depth_file, metres[::-1])
    np.testing.assert_array_equal(cache.read(depth_file, 1000), metres[::-1])
    os.utime(depth_file, ns=(1, 1))
    np.testing.assert_array_equal(cache.read(depth_file, 1000), metres[::-1])
    assert len(list((tmp_path / "kept").iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01\x00v\x00{", b"no array at all", None])
def test_a_kept_file_that_is_damaged_is_made_again(depth_file: Path, tmp_path: Path, damage: bytes | None) -> None:
    plain = read_depth(depth_file, 1000)
    cache = DepthCache(tmp_path / "kept")
    cache.read(depth_file, 1000)
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9] if damage is None else damage)
    for _ in range(2):
        np.testing.assert_array_equal(cache.read(depth_file, 1000), plain)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_data_set_reads_depth_through_its_cache(tmp_path: Path, decoded: list[Path]) -> None:
    write_folder(tmp_path / "data", [photo()])
    data = Folder(root=tmp_path / "data", depth_scale=1000)
    plain = data.depth_map(0)
    data.depth_cache = DepthCache(tmp_path / "kept")
    for _ in range(2):
        np.testing.assert_array_equal(data.depth_map(0), plain)
    np.testing.assert_array_equal(data.read(0).depth, plain)
    assert decoded == [data.files(0)["depth"]]
