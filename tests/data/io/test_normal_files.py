"""Files of normals, in every published convention of axes, and OpenEXR depth: what is written comes back."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from densevit.data.io.normals import change_axes, encode_normals, read_normals, unit
from densevit.data.io.readers import read_depth, read_values
from densevit.errors import DataError


def some() -> np.ndarray:
    normals = unit(np.random.default_rng(0).normal(size=(20, 30, 3)))
    normals[:5] = 0
    return normals


def angles(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    cross = np.linalg.norm(np.cross(one.astype(float), other.astype(float)), axis=-1)
    return np.degrees(np.arctan2(cross, (one.astype(float) * other).sum(-1)))


@pytest.mark.parametrize(("bits", "most"), [(8, 0.4), (16, 0.002)])
def test_a_png_keeps_directions_and_where_there_is_none(tmp_path: Path, bits: int, most: float) -> None:
    path = tmp_path / "n.png"
    path.write_bytes(encode_normals(some(), bits))  # type: ignore[arg-type]
    stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == (np.uint8 if bits == 8 else np.uint16) and stored.shape == (20, 30, 3)
    read = read_normals(path)
    assert read.dtype == np.float32 and not read[:5].any()
    assert angles(read[5:], some()[5:]).max() < most
    # Red is x: cv2 reads it last.
    assert stored[6, 6, 2] == np.rint((some()[6, 6, 0] + 1) / 2 * (2**bits - 1))


def test_float_files_hold_the_components_and_short_vectors_are_none(tmp_path: Path) -> None:
    vectors = some() * 0.9
    vectors[7] *= 0.1
    vectors[8] = np.nan
    np.save(tmp_path / "n.npy", vectors.transpose(2, 0, 1))  # as networks give them
    read = read_normals(tmp_path / "n.npy")
    assert not read[7:9].any() and angles(read[9:], some()[9:]).max() < 1e-2


def test_exr_files_are_read(tmp_path: Path) -> None:
    OpenEXR = pytest.importorskip("OpenEXR")
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    for names in ("RGB", "XYZ"):
        channels = {name: np.ascontiguousarray(some()[..., i]) for i, name in enumerate(names)}
        OpenEXR.File(header, channels).write(str(tmp_path / f"{names}.exr"))
        np.testing.assert_allclose(read_normals(tmp_path / f"{names}.exr"), some(), atol=1e-6)


def test_a_wall_that_faces_the_camera_in_the_axes_of_others() -> None:
    # Their normals of it are (0, 0, 1) (DSINE's issue 8; Hypersim's camera), ours (0, 0, -1); a floor has y up.
    wall, floor = np.array([[[0, 0, 1]]], np.float32), np.array([[[0, 1, 0]]], np.float32)
    for axes in ("opengl", "dsine"):
        assert change_axes(wall, axes).tolist() == [[[0, 0, -1]]]  # type: ignore[arg-type]
        assert change_axes(floor, axes).tolist() == [[[0, -1, 0]]]  # type: ignore[arg-type]
    # What faces left has x = -1 to us and to OpenGL, and x = 1 to DSINE.
    left = np.array([[[-1, 0, 0]]], np.float32)
    assert change_axes(left, "opengl")[0, 0, 0] == -1 and change_axes(left, "dsine")[0, 0, 0] == 1


def test_what_is_no_map_of_normals_is_named(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "gray.png"), np.zeros((4, 4), np.uint16))
    np.save(tmp_path / "flat.npy", np.zeros((4, 4), np.float32))
    cv2.imwrite(str(tmp_path / "lossy.jpg"), np.zeros((4, 4, 3), np.uint8))
    np.save(tmp_path / "coded.npy", np.full((4, 4, 3), (128, 128, 255), np.uint8))  # a wall in OpenGL's axes
    shape = "height x width x 3"
    for name, says in (("gray.png", shape), ("flat.npy", shape), ("lossy.jpg", "JPEG"), ("coded.npy", "holds uint8")):
        with pytest.raises(DataError, match=f"{name}.*{says}"):
            read_normals(tmp_path / name, "opengl")


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
