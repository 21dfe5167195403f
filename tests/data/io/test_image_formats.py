"""Image files of every format: what is read of them, and what is refused or warned of."""

import logging
import os
import re
import socket
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from orientations import oriented
from photo_samples import small
from PIL import Image, features

from densevit.data.io import images
from densevit.data.io.images import OTHER_IMAGE_SUFFIXES, SUFFIX_FORMATS
from densevit.data.io.readers import image_size, read_depth, read_image, read_labels
from densevit.errors import DataError


def save_heic(picture: Image.Image, path: Path, **options: Any) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    picture.save(path, "HEIF", **options)


def pixels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB"))


@pytest.mark.parametrize("quality", [50, 95])
def test_a_cmyk_jpeg_gives_what_opencv_reads(tmp_path: Path, quality: int) -> None:
    rng = np.random.default_rng(0)
    stored = cv2.resize(rng.integers(0, 255, (8, 10, 4), np.uint8), (100, 80), interpolation=cv2.INTER_CUBIC)
    path = tmp_path / "a.jpg"
    Image.fromarray(stored, "CMYK").save(path, quality=quality)
    expected = cv2.imread(str(path))
    assert expected is not None and (pixels(Image.open(path)) != expected[..., ::-1]).any()  # Pillow rounds otherwise
    np.testing.assert_array_equal(read_image(path), expected[..., ::-1])


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow was built without AVIF")
def test_avif_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.avif"
    small().save(path, quality=95)
    np.testing.assert_array_equal(read_image(path), pixels(Image.open(path)))
    assert image_size(path) == (60, 90)
    assert np.abs(read_image(path).astype(int) - pixels(small())).mean() < 4


@pytest.mark.parametrize("suffix", [".heic", ".heif", ".jpg"])
def test_heic_is_read_whatever_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    save_heic(small(), path, quality=95)
    assert image_size(path) == (60, 90)
    assert np.abs(read_image(path).astype(int) - pixels(small())).mean() < 4


def test_heic_is_upright(tmp_path: Path) -> None:
    save_heic(small().transpose(Image.Transpose.ROTATE_90), tmp_path / "a.heic", quality=95, exif=oriented(6).tobytes())
    assert image_size(tmp_path / "a.heic") == (60, 90)
    assert np.abs(read_image(tmp_path / "a.heic").astype(int) - pixels(small())).mean() < 4


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_heic(small(), tmp_path / "a.heic")
    small().save(tmp_path / "b.avif")
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif.as_plugin", None)
    monkeypatch.setattr(images.features, "check", lambda name: False)
    with pytest.raises(DataError, match=re.escape("a.heic: HEIC needs pillow-heif (pip install 'densevit[heif]')")):
        read_image(tmp_path / "a.heic")
    with pytest.raises(DataError, match=r"b\.avif: AVIF needs Pillow 11\.3"):
        read_image(tmp_path / "b.avif")


def test_gif_and_jpeg_2000_are_read(tmp_path: Path) -> None:
    gray = small().convert("L")
    gray.save(tmp_path / "a.gif")
    small().save(tmp_path / "a.jp2")  # lossless by default
    np.testing.assert_array_equal(read_image(tmp_path / "a.gif"), pixels(gray))
    np.testing.assert_array_equal(read_image(tmp_path / "a.jp2"), pixels(small()))


@pytest.mark.parametrize("suffix", [".jpg", ".jp2", ".avif"])
def test_formats_that_lose_something_are_refused_as_labels(tmp_path: Path, suffix: str) -> None:
    small().convert("L").save(tmp_path / f"a{suffix}")
    with pytest.raises(DataError, match="does not keep class ids exactly"):
        read_labels(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp", ".tiff", ".avif"])
def test_of_several_images_the_first_is_read_and_a_warning_says_so_once(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"a{suffix}"
    first, second = small().convert("L"), small().convert("L").transpose(Image.Transpose.ROTATE_180)
    first.save(path, save_all=True, append_images=[second], **({"lossless": True} if suffix == ".webp" else {}))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = read_image(path)
    limit = 4 if suffix == ".avif" else 0
    assert np.abs(found.astype(int) - pixels(first)).mean() <= limit
    assert [record.message for record in caplog.records] == [
        f"{path}: holds several images (an animation, or pages); the first is read."
    ]


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp", ".tiff", ".jpg", ".jp2"])
def test_a_single_image_has_no_warning(tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    small().save(tmp_path / f"a{suffix}")
    read_image(tmp_path / f"a{suffix}")
    assert not caplog.records


@pytest.mark.parametrize("read", [read_image, read_depth, read_labels, image_size])
def test_a_fifo_is_refused_at_once(tmp_path: Path, read: object) -> None:
    path = tmp_path / "a.jpg"
    os.mkfifo(path)
    assert callable(read)
    with pytest.raises(DataError, match=r"^'\S*a\.jpg': is a FIFO, not a regular file"):
        read(path)


def test_sockets_and_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("a.jpg")
        with pytest.raises(DataError, match="is a socket"):
            read_image("a.jpg")
    with pytest.raises(DataError, match="is a device"):
        read_image("/dev/zero")


def test_no_suffix_is_both_read_and_left_out() -> None:
    assert not OTHER_IMAGE_SUFFIXES & SUFFIX_FORMATS.keys()
    assert {SUFFIX_FORMATS[suffix] for suffix in (".jpg", ".heic", ".avif", ".gif")} == {"JPEG", "HEIC", "AVIF", "GIF"}
