"""Decoding: formats, orientation, units, and what is refused."""

import ast
import struct
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import cv2
import h5py
import numpy as np
import pytest
from layouts.encoders import DEPTH_WRITERS, png
from orientations import TURNS, oriented
from photo_samples import photo, sample, small
from PIL import Image, ImageFile, PngImagePlugin
from scorecard import fuzzing

from densevit.data.io.readers import image_size, read_depth, read_image, read_labels
from densevit.data.io.writers import encode, encode_depth, encode_pfm
from densevit.errors import DataError


def small_depth() -> np.ndarray:
    return np.ascontiguousarray(photo().depth[100:160, 200:290])


def kept(suffix: str) -> dict[str, bool]:
    """Options of Pillow that keep every pixel."""
    return {"lossless": True} if suffix == ".webp" else {}


@pytest.mark.parametrize("suffix", [".png", ".webp", ".tiff"])
def test_all_eight_orientations_read_as_the_upright_picture(tmp_path: Path, suffix: str) -> None:
    upright, path = small(), tmp_path / f"a{suffix}"
    for orientation, turn in TURNS.items():
        stored = upright if turn is None else upright.transpose(turn)
        stored.save(path, exif=oriented(orientation), **kept(suffix))
        np.testing.assert_array_equal(read_image(path), np.asarray(upright), str(orientation))
        assert image_size(path) == (60, 90)


def test_a_jpeg_is_turned_exactly_as_its_stored_pixels_say(tmp_path: Path) -> None:
    small().save(tmp_path / "plain.jpg", quality=95)
    stored = Image.fromarray(read_image(tmp_path / "plain.jpg"))
    for orientation in TURNS:
        small().save(tmp_path / "tagged.jpg", quality=95, exif=oriented(orientation))
        turn = TURNS[{6: 8, 8: 6}.get(orientation, orientation)]  # all but the quarter turns undo themselves
        expected = stored if turn is None else stored.transpose(turn)
        np.testing.assert_array_equal(read_image(tmp_path / "tagged.jpg"), np.asarray(expected), str(orientation))


def test_depth_and_labels_follow_the_orientation_they_carry(tmp_path: Path) -> None:
    ids = np.arange(60 * 90, dtype=np.uint8).reshape(60, 90)
    Image.fromarray(np.rot90(ids)).save(tmp_path / "l.png", exif=oriented(6))
    Image.fromarray(np.rot90(ids.astype(np.uint16) + 300)).save(tmp_path / "d.png", exif=oriented(6))
    np.testing.assert_array_equal(read_labels(tmp_path / "l.png"), ids)
    np.testing.assert_allclose(read_depth(tmp_path / "d.png", 1.0), ids + 300.0)


def test_every_pixel_type_gives_what_pillow_converts_to_rgb(tmp_path: Path) -> None:
    for mode in ("1", "L", "LA", "RGBA", "P", "CMYK"):
        picture = small().convert(mode)
        for suffix in (".tiff",) if mode == "CMYK" else (".tiff", ".png"):  # PNG has no CMYK
            path = tmp_path / f"{mode}{suffix}"
            picture.save(path, **({"transparency": bytes(range(256))} if (mode, suffix) == ("P", ".png") else {}))
            np.testing.assert_array_equal(read_image(path), np.asarray(picture.convert("RGB")), path.name)


def test_sixteen_bit_images_keep_their_upper_eight_bits(tmp_path: Path) -> None:
    rgb = photo().image[:40, :50].astype(np.uint16) * 256 + 77
    (tmp_path / "rgb.png").write_bytes(encode(".png", rgb))
    (tmp_path / "gray.png").write_bytes(encode(".png", rgb[..., 0].copy()))
    (tmp_path / "gray.tiff").write_bytes(encode(".tiff", rgb[..., 0].copy()))
    np.testing.assert_array_equal(read_image(tmp_path / "rgb.png"), rgb >> 8)
    for name in ("gray.png", "gray.tiff"):
        np.testing.assert_array_equal(read_image(tmp_path / name)[..., 1], rgb[..., 0] >> 8)
    black_is_zero, white_is_zero = (struct.pack("<HHIHH", 262, 3, 1, value, 0) for value in (1, 0))
    data = (tmp_path / "gray.tiff").read_bytes()
    assert black_is_zero in data
    (tmp_path / "white.tiff").write_bytes(data.replace(black_is_zero, white_is_zero))
    np.testing.assert_array_equal(read_image(tmp_path / "white.tiff")[..., 1], 255 - (rgb[..., 0] >> 8))


def test_slim_images_are_read_and_the_format_is_told_by_content_not_by_suffix(tmp_path: Path) -> None:
    for shape in ((1, 1, 3), (1, 5000, 3), (5000, 1, 3)):
        (tmp_path / "a.png").write_bytes(encode(".png", np.full(shape, 7, np.uint8)))
        assert read_image(tmp_path / "a.png").shape == shape
    (tmp_path / "a.jpg").write_bytes(encode(".png", np.asarray(small())))
    np.testing.assert_array_equal(read_image(tmp_path / "a.jpg"), np.asarray(small()))


def test_what_is_no_picture_is_named_with_the_reason(tmp_path: Path) -> None:
    jpeg, thumbnail = (encode(".jpg", pixels.copy()) for pixels in (np.asarray(small()), np.asarray(small())[:16, :16]))
    exif = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 8) + b"Exif\0\0" + thumbnail
    for data, reason in (
        (b"", "empty"),
        (b"just words, no picture", "not an image"),
        (b"%PDF-1.7 ...", "is PDF"),
        (b"MM\0+" + bytes(60), "is big-endian BigTIFF"),
        (b"PK\x03\x04 an archive", "is ZIP"),
        (b"\0\0\0\x20ftypisom", "is video"),
        (b"\xff\xd8\xff\xe0", "header is damaged"),
        (encode(".tiff", small_depth()), "float"),
        *((jpeg[:-missing], "no end marker") for missing in (1, 2, 10, 100)),
        (jpeg[:2] + exif + jpeg[2:-10], "no end marker"),  # that of the thumbnail does not count
    ):
        (tmp_path / "a.jpg").write_bytes(data)
        with pytest.raises(DataError, match=f"a.jpg.*{reason}"):
            read_image(tmp_path / "a.jpg")
    for name in ("missing.png", ".", "a\0b.png"):
        with pytest.raises(DataError):
            read_image(tmp_path / name)
    (tmp_path / "a.jpg").write_bytes(jpeg)
    (tmp_path / "b.jpg").write_bytes(jpeg + b"\0" * 100)  # bytes after the end do no harm
    np.testing.assert_array_equal(read_image(tmp_path / "a.jpg"), read_image(tmp_path / "b.jpg"))


def test_too_many_pixels_are_refused_from_the_header_alone(tmp_path: Path) -> None:
    # A header of 20000 x 20000 with no pixels behind it: whoever decoded would find it damaged.
    (tmp_path / "a.png").write_bytes(png(struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0), (b"IDAT", b"")))
    with pytest.raises(DataError, match="400,000,000 pixels; the limit is 178,000,000 \\(max_pixels\\)"):
        read_image(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes(encode(".png", np.asarray(small())))
    with pytest.raises(DataError, match="limit is 100"):
        read_image(tmp_path / "a.png", max_pixels=100)


def test_sixteen_bit_depth_is_divided_by_its_scale(tmp_path: Path) -> None:
    stored = np.array([[0, 1, 256], [1000, 2560, 65535]], np.uint16)
    (tmp_path / "d.png").write_bytes(encode(".png", stored))
    (tmp_path / "d.tiff").write_bytes(encode(".tiff", stored))
    for name in ("d.png", "d.tiff"):
        np.testing.assert_array_equal(read_depth(tmp_path / name, 256), (stored / 256).astype(np.float32))


def test_integers_need_a_positive_unit_and_the_option_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.png").write_bytes(encode_depth(small_depth(), 1000))
    np.save(tmp_path / "d.npy", np.ones((4, 5), np.int32))
    for name in ("d.png", "d.npy"):
        with pytest.raises(DataError, match="depth_scale"):
            read_depth(tmp_path / name)
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DataError, match="positive"):
            read_depth(tmp_path / "d.png", scale)


def test_a_png_says_its_own_scale_and_the_users_word_goes_first(tmp_path: Path) -> None:
    def write(scale: str) -> Path:
        info = PngImagePlugin.PngInfo()
        info.add_text("depth_scale", scale)
        Image.fromarray(np.full((3, 4), 1000, np.uint16)).save(tmp_path / "d.png", pnginfo=info)
        return tmp_path / "d.png"

    assert read_depth(write("500")).max() == 2.0 and read_depth(write("500"), 1000).max() == 1.0
    with pytest.raises(DataError, match="millimetres"):
        read_depth(write("millimetres"))


@pytest.mark.parametrize("suffix", [s for s in DEPTH_WRITERS if s != ".png"])
def test_float_formats_give_back_the_metres_and_zero_what_is_none(tmp_path: Path, suffix: str) -> None:
    depth = small_depth()
    depth[0, :4] = [np.nan, np.inf, -1.0, 0.0]
    (tmp_path / f"d{suffix}").write_bytes(DEPTH_WRITERS[suffix](depth, 1.0))  # type: ignore[index]
    read = read_depth(tmp_path / f"d{suffix}")
    assert not read[0, :4].any()
    np.testing.assert_array_equal(read.ravel()[4:], depth.ravel()[4:])


def test_float64_overflow_and_negative_integers_are_not_valid(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.array([[1e300, 1e-320, 2.5]]))
    np.testing.assert_array_equal(read_depth(tmp_path / "f.npy"), [[0, 0, 2.5]])
    np.save(tmp_path / "i.npy", np.array([[-5, 0, 2000]], np.int32))
    np.testing.assert_array_equal(read_depth(tmp_path / "i.npy", 1000), [[0, 0, 2]])


def test_a_big_endian_pfm_reads_bottom_up_and_agrees_with_opencv(tmp_path: Path) -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    (tmp_path / "d.pfm").write_bytes(b"Pf\n3 2\n1.0\n" + rows[::-1].astype(">f4").tobytes())
    np.testing.assert_array_equal(read_depth(tmp_path / "d.pfm"), rows)
    (tmp_path / "d.pfm").write_bytes(b"Pf\n# from GIMP\n3 2\n-1.0\n" + rows[::-1].astype("<f4").tobytes())
    np.testing.assert_array_equal(read_depth(tmp_path / "d.pfm"), rows)
    (tmp_path / "d.pfm").write_bytes(encode_pfm(small_depth()))
    reference = cv2.imread(str(tmp_path / "d.pfm"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(read_depth(tmp_path / "d.pfm"), reference)


NO_DEPTH = [
    ("gray.png", encode(".png", np.zeros((4, 5), np.uint8)), "16-bit"),
    ("rgb.png", encode(".png", np.zeros((4, 5, 3), np.uint8)), "16-bit"),
    ("rgb16.png", encode(".png", np.zeros((4, 5, 3), np.uint16)), "one"),
    ("a.jpg", encode(".jpg", np.zeros((4, 5), np.uint8)), "16-bit"),
    ("colour.pfm", b"PF\n2 2\n-1.0\n" + bytes(48), "colour"),
    ("short.pfm", b"Pf\n2 2\n-1.0\n" + bytes(15), "truncated"),
    ("words.pfm", b"Pf\ntwo by two\n", "damaged"),
    ("a.exr", b"\x76\x2f\x31\x01" + bytes(20), "EXR"),
]


def tiff(data: bytes, bits: int, more: dict[int, int]) -> bytes:
    """A gray TIFF 6.0, 4 x 5 unless `more` says other; 259 is its compression (8: deflate), 339 its type of numbers."""
    tags = {256: 5, 257: 4, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: 4, 279: len(data), **more}
    entries = b"".join(struct.pack(">HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"MM\0*" + struct.pack(">I", 8 + len(data)) + data + struct.pack(">H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [">i2", ">i4", ">f4"])
def test_big_endian_tiffs_are_read_compressed_or_not(tmp_path: Path, dtype: str, packed: bool) -> None:
    stored = np.arange(1, 21).reshape(4, 5).astype(dtype)
    data = zlib.compress(stored.tobytes()) if packed else stored.tobytes()
    kind = 3 if stored.dtype.kind == "f" else 2
    (tmp_path / "d.tif").write_bytes(tiff(data, 8 * stored.itemsize, {259: 8 if packed else 1, 339: kind}))
    np.testing.assert_array_equal(read_depth(tmp_path / "d.tif", 2), stored / 2)


def test_unsigned_32_bits_of_a_tiff_are_not_taken_for_signed_ones(tmp_path: Path) -> None:
    stored = np.array([[1, 2**31 - 1], [2**31, 4 * 10**9]], np.uint32)
    cv2.imwrite(str(tmp_path / "d.tif"), stored)
    np.testing.assert_array_equal(read_depth(tmp_path / "d.tif", 1), stored.astype(np.float32))


def test_planes_of_16_bit_colours_are_not_read_as_8_bits(tmp_path: Path) -> None:
    rgb = (np.arange(60).reshape(4, 5, 3) << 8).astype(">u2")
    colours = {262: 2, 277: 3}
    (tmp_path / "a.tif").write_bytes(tiff(rgb.tobytes(), 16, colours))
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif"), rgb >> 8)
    (tmp_path / "b.tif").write_bytes(tiff(rgb.transpose(2, 0, 1).tobytes(), 16, colours | {284: 2}))
    with pytest.raises(DataError, match=r"b\.tif.*plane for each colour.*interleaved"):
        read_image(tmp_path / "b.tif")


def test_the_header_of_a_pfm_may_have_the_line_ends_of_windows(tmp_path: Path) -> None:
    content = encode_pfm(small_depth())
    header = content[: -small_depth().nbytes]
    for name, ends in (("unix.pfm", b"\n"), ("windows.pfm", b"\r\n")):
        (tmp_path / name).write_bytes(header.replace(b"\n", ends) + content[len(header) :])
        np.testing.assert_array_equal(read_depth(tmp_path / name), small_depth())


def test_what_is_no_depth_is_refused_with_the_reason(tmp_path: Path) -> None:
    for name, data, reason in NO_DEPTH:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=f"{name}.*{reason}"):
            read_depth(tmp_path / name, 1000)
    cv2.imwrite(str(tmp_path / "d.tif"), np.ones((4, 5)))  # of 64 bits, which is no damage
    with pytest.raises(DataError, match=r"d\.tif.*not read here.*32-bit floats"):
        read_depth(tmp_path / "d.tif")


def test_an_array_is_a_plane_with_one_channel_at_most(tmp_path: Path) -> None:
    for shape in ((4, 5, 1), (1, 4, 5), (1, 1, 4, 5)):
        np.save(tmp_path / "d.npy", np.ones(shape, np.float32))
        assert read_depth(tmp_path / "d.npy").shape == (4, 5)
    for array in (np.ones((4, 5, 3), np.float32), np.ones(7), np.ones((0, 3)), np.ones((4, 5), bool)):
        np.save(tmp_path / "d.npy", array)
        with pytest.raises(DataError, match="d.npy"):
            read_depth(tmp_path / "d.npy", 1.0)


def test_an_archive_of_several_arrays_must_call_one_depth_and_hold_no_pickles(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", depth=np.full((2, 3), 2.0), other=np.zeros(1))
    np.savez(tmp_path / "bad.npz", a=np.zeros((2, 3)), b=np.zeros((2, 3)))
    np.savez(tmp_path / "pickled.npz", depth=np.array([[{"a": 1}]], object))
    assert read_depth(tmp_path / "good.npz").max() == 2
    for name, told in (("bad.npz", "'depth'"), ("pickled.npz", "allow_pickle")):
        with pytest.raises(DataError, match=f"{name}.*{told}"):
            read_depth(tmp_path / name)


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_a_header_that_python_fails_to_parse_beside_another_thread_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[Any, np.ndarray], None]
) -> None:
    """As Python 3.11.7 fails, once in some 500,000 headers: github.com/python/cpython/issues/106905."""
    with open(tmp_path / "0", "wb") as file:
        save(file, np.full((2, 3), 2.0))
    monkeypatch.setattr(ast, "literal_eval", Mock(wraps=ast.literal_eval, side_effect=[SystemError, DEFAULT]))
    assert read_depth(tmp_path / "0").min() == 2


def test_an_array_larger_than_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file.create_dataset("depth", (100_000, 100_000), np.float32, chunks=(1000, 1000))
    np.save(tmp_path / "d.npy", np.ones((20, 20)))
    np.savez_compressed(tmp_path / "d.npz", np.ones((20, 20)))
    with pytest.raises(DataError, match="max_pixels"):
        read_depth(tmp_path / "d.h5")
    for name in ("d.npy", "d.npz"):
        with pytest.raises(DataError, match="max_pixels"):
            read_depth(tmp_path / name, max_pixels=300)


def test_palette_indices_are_the_class_ids(tmp_path: Path) -> None:
    ids = (np.arange(20, dtype=np.uint8) % 7).reshape(4, 5)
    picture = Image.fromarray(ids).convert("P")
    picture.putdata(ids.ravel().tolist())
    picture.putpalette([200, 100, 50] * 7)  # all of one colour: only the index tells them apart
    picture.save(tmp_path / "p.png")
    Image.fromarray(ids).save(tmp_path / "l.png")
    Image.fromarray(ids.astype(np.uint16) + 1000).save(tmp_path / "l16.png")
    np.save(tmp_path / "l.npy", ids)
    for name, add in (("p.png", 0), ("l.png", 0), ("l16.png", 1000), ("l.npy", 0)):
        np.testing.assert_array_equal(read_labels(tmp_path / name), ids.astype(int) + add)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_ids_in_gray_are_neither_stretched_nor_inverted(tmp_path: Path, bits: int) -> None:
    ids = np.arange(16).reshape(2, 8) % 2**bits
    digits = np.unpackbits(ids.astype(np.uint8)[..., None], axis=2)[..., 8 - bits :]
    raw = b"".join(b"\0" + np.packbits(row).tobytes() for row in digits)  # each row after its filter type, none
    header = struct.pack(">IIBBBBB", 8, 2, bits, 0, 0, 0, 0)
    (tmp_path / "l.png").write_bytes(png(header, (b"IDAT", zlib.compress(raw))))
    for white, name in enumerate(("white.tif", "l.tif")):
        more = {256: 8, 257: 2, 278: 2, 262: white}
        (tmp_path / name).write_bytes(tiff(np.packbits(digits).tobytes(), bits, more))
    for name in ("l.png", "l.tif", "white.tif"):
        np.testing.assert_array_equal(read_labels(tmp_path / name), ids)


def test_labels_that_are_colours_or_floats_are_refused(tmp_path: Path) -> None:
    colours, floats = np.asarray(small()), small_depth()
    for name, pixels in (("rgb.png", colours), ("a.jpg", colours), ("f.tiff", floats), ("f.npy", floats)):
        if name == "f.npy":
            np.save(tmp_path / name, pixels)
        else:
            (tmp_path / name).write_bytes(encode(Path(name).suffix, pixels))
        with pytest.raises(DataError, match=name):
            read_labels(tmp_path / name)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", fuzzing.cases())
def test_damaged_bytes_give_an_array_or_a_data_error_and_no_truncated_file_is_whole(tmp_path: Path, kind: str) -> None:
    data, read = fuzzing.cases()[kind]
    fuzzing.fuzz(tmp_path / kind, (data, read), trials=200)
    if not kind.endswith((".bmp", ".webp")):
        last = len(data) - (5 if kind.endswith(".tiff") else 1)  # a TIFF may lack what follows its tags
        for keep in np.linspace(1, last, 40).astype(int):
            (tmp_path / kind).write_bytes(data[:keep])
            with pytest.raises(DataError):
                read(tmp_path / kind)


def test_decoding_leaves_the_libraries_as_they_were(tmp_path: Path) -> None:
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, cv2.getNumThreads())
    (tmp_path / "a.png").write_bytes(encode(".png", sample("a").image))
    read_image(tmp_path / "a.png")
    assert (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, cv2.getNumThreads()) == before


def gray16(pixels: np.ndarray, extra: list[tuple[bytes, bytes]], *, interlaced: bool) -> bytes:
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[y::dy, x::dx] for y, x, dy, dx in passes] if interlaced else [pixels]
    packed = zlib.compress(b"".join(b"\0" + row.astype(">u2").tobytes() for part in parts if part.size for row in part))
    half, (h, w) = len(packed) // 2, pixels.shape
    header = struct.pack(">IIBBBBB", w, h, 16, 0, 0, 0, interlaced)
    return png(header, *extra, (b"IDAT", packed[:half]), (b"IDAT", packed[half:]))


def test_a_16_bit_png_gives_its_numbers_whatever_else_it_holds(tmp_path: Path) -> None:
    extras = [[], [(b"tRNS", b"\7\x94")], [(b"sBIT", b"\x0c")], [(b"gAMA", b"\0\0\xb1\x8f")]]
    for size, extra, interlaced in product([(1, 1), (7, 5), (60, 90)], extras, [False, True]):
        pixels = np.random.default_rng(0).integers(0, 65536, size).astype(np.uint16)
        (tmp_path / "a.png").write_bytes(gray16(pixels, extra, interlaced=interlaced))
        told = f"{size} {extra} {interlaced}"
        np.testing.assert_array_equal(read_depth(tmp_path / "a.png", 1), pixels.astype(np.float32), told)


def test_npy_of_any_number_and_order_is_read(tmp_path: Path) -> None:
    kinds, turns = ["<f4", ">f4", "<f8", "<f2", ">i4", "<u2"], [np.ascontiguousarray, np.asfortranarray]
    for turn, kind, version in product(turns, kinds, [(1, 0), (2, 0)]):
        values = turn(np.arange(1, 13).reshape(3, 4).astype(kind))
        with open(tmp_path / "a.npy", "wb") as file:
            np.lib.format.write_array(file, values, version)
        told = f"{turn} {kind} {version}"
        np.testing.assert_array_equal(read_depth(tmp_path / "a.npy", 1), values.astype(np.float32), told)


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
@pytest.mark.parametrize(
    ("values", "cut", "told"),
    [
        (np.ones((9, 9), np.float32), 7, "truncated"),
        (np.array([[None, 1]], object), 0, "Python objects"),
        (np.zeros((2, 2), [("\u6df1", "f4")]), 0, "records"),
        (np.zeros((2, 2), [("depth", "f4")]), 0, "height|holds"),
    ],
)
def test_npy_that_is_no_map_is_refused(tmp_path: Path, values: np.ndarray, cut: int, told: str) -> None:
    path = tmp_path / "a.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array(file, values, None)
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    with pytest.raises(DataError, match=f"a.npy.*({told})"):
        read_depth(path)
