"""Damages files of every format and reads them; an alarm ends the process where one file takes longer than PATIENCE."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from layouts.encoders import DEPTH_WRITERS
from PIL import Image

from densevit.data.io.readers import read_depth, read_image, read_labels
from densevit.data.io.writers import encode
from densevit.errors import DataError

PATIENCE = 30  # seconds; the machine may be busy
PICTURES = (".jpg", ".png", ".webp", ".tiff", ".bmp")
Case = tuple[bytes, Callable[[Path], object]]


def cases() -> dict[str, Case]:
    """Name -> a sound file and its reader."""
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[:60, :90]
    smooth = np.stack([rows * 4, columns * 2, 255 - columns * 2], -1) + draw.integers(0, 15, (60, 90, 3))
    image = smooth.clip(0, 255).astype(np.uint8)
    depth = (1 + rows[:24, :32] / 10 + draw.uniform(0, 0.1, (24, 32))).astype(np.float32)
    ids = (rows // 20 + columns // 30).astype(np.uint8)
    return {
        **{f"image{suffix}": (encode(suffix, image), read_image) for suffix in PICTURES},
        **{
            f"depth{suffix}": (write(depth, 1000.0), partial(read_depth, scale=1000.0))
            for suffix, write in DEPTH_WRITERS.items()
        },
        "labels.png": (encode(".png", ids), read_labels),
        "palette.png": (palette(ids), read_labels),
    }


def palette(ids: np.ndarray) -> bytes:
    from io import BytesIO

    file, picture = BytesIO(), Image.fromarray(ids).convert("P")
    picture.save(file, "PNG")
    return file.getvalue()


def fuzz(path: Path, case: Case, trials: int) -> None:
    """
    Raises:
        AssertionError: an error does not name the file; and whatever is no DataError.
    """
    data, read = case
    draw = np.random.default_rng(0)
    for trial in range(trials):
        damaged = bytearray(data)
        if trial % 2:
            del damaged[int(draw.integers(1, len(data))) :]
        else:
            damaged[int(draw.integers(len(data)))] ^= int(draw.integers(1, 256))
        path.write_bytes(bytes(damaged))
        signal.alarm(PATIENCE)
        try:
            read(path)
        except DataError as error:
            assert str(path) in str(error), error
    signal.alarm(0)
