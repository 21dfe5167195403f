"""Truth that is kept decoded: the same numbers, and never those of a file that has changed since."""

import os
from pathlib import Path

import numpy as np
import pytest
from real_shaped import photo

from densevit.data.io import readers
from densevit.data.io.depth_cache import depth_cache
from densevit.data.io.readers import read_depth
from densevit.data.io.writers import encode_depth


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    depth = photo().depth
    assert depth is not None
    return write(tmp_path / "truth.png", np.ascontiguousarray(depth[:60, :80]))


def write(path: Path, depth: np.ndarray) -> Path:
    path.write_bytes(encode_depth(depth, 1000))
    return path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were decoded."""
    seen: list[Path] = []
    decode = readers._decode
    monkeypatch.setattr(readers, "_decode", lambda path, *rest: seen.append(path) or decode(path, *rest))
    return seen


def test_a_map_is_decoded_once_and_comes_back_the_same(truth: Path, tmp_path: Path, decoded: list[Path]) -> None:
    plain = read_depth(truth, 1000)
    for _ in range(3):
        with depth_cache(tmp_path / "kept"):
            np.testing.assert_array_equal(read_depth(truth, 1000), plain)
    assert decoded == [truth, truth]  # once outside, once inside
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_another_unit_or_another_content_is_decoded_anew(truth: Path, tmp_path: Path) -> None:
    with depth_cache(tmp_path / "kept"):
        metres = read_depth(truth, 1000)
        np.testing.assert_allclose(read_depth(truth, 500), metres * 2, rtol=1e-6)
        write(truth, metres[::-1])
        np.testing.assert_array_equal(read_depth(truth, 1000), metres[::-1])
        os.utime(truth, ns=(1, 1))
        np.testing.assert_array_equal(read_depth(truth, 1000), metres[::-1])
    assert len(list((tmp_path / "kept").iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01\x00v\x00{", b"no array at all", None])
def test_a_kept_file_that_is_damaged_is_made_again(truth: Path, tmp_path: Path, damage: bytes | None) -> None:
    plain = read_depth(truth, 1000)
    with depth_cache(tmp_path / "kept"):
        read_depth(truth, 1000)
        (kept,) = (tmp_path / "kept").iterdir()
        kept.write_bytes(kept.read_bytes()[:-9] if damage is None else damage)
        for _ in range(2):
            np.testing.assert_array_equal(read_depth(truth, 1000), plain)
    assert len(list((tmp_path / "kept").iterdir())) == 1
