"""OpenEXR depth, as renderers write it."""

from pathlib import Path

import numpy as np
import pytest

from densevit.data.io.readers import read_depth, read_values
from densevit.errors import DataError

OpenEXR = pytest.importorskip("OpenEXR")
DEPTH = np.linspace(0.5, 20, 35, dtype=np.float32).reshape(5, 7)


def put(path: Path, channels: dict[str, np.ndarray]) -> Path:
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with OpenEXR.File(header, channels) as file:
        file.write(str(path))
    return path


def test_the_channel_of_depth_is_found_by_its_usual_names_alone_or_beside_colours(tmp_path: Path) -> None:
    colours, path = np.random.default_rng(0).random((5, 7, 3), np.float32), tmp_path / "a.exr"
    for name in ("Z", "V", "Y", "Depth.V", "View Layer.Depth.Z", "anything"):
        assert np.array_equal(read_depth(put(path, {name: DEPTH})), DEPTH)
    assert np.array_equal(read_depth(put(path, {"RGB": colours, "Z": DEPTH})), DEPTH)
    # A gray picture of three equal channels is one map; colours are none.
    assert np.array_equal(read_values(put(path, {"RGB": np.stack([DEPTH] * 3, -1)})), DEPTH)
    with pytest.raises(DataError, match=r"a\.exr: holds .*B.*G.*R"):
        read_depth(put(path, {"RGB": colours}))


def test_half_precision_is_read_and_what_is_no_depth_is_0(tmp_path: Path) -> None:
    stored = DEPTH.astype(np.float16)
    stored[0, :2] = np.inf, np.nan
    read = read_depth(put(tmp_path / "a.exr", {"Z": stored}))
    assert read[0, :2].tolist() == [0, 0] and np.array_equal(read[1:], stored[1:].astype(np.float32))


def test_a_cut_file_and_a_huge_one_are_named(tmp_path: Path) -> None:
    path = put(tmp_path / "a.exr", {"Z": DEPTH})
    with pytest.raises(DataError, match=r"35 values; the limit is 20"):
        read_depth(path, max_pixels=20)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"a\.exr: the EXR file is damaged"):
        read_depth(path)
