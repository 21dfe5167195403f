"""Twenty pictures as people have them: of every pixel type, turned by EXIF, thin, a PDF, wrongly named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from orientations import TURNS
from PIL import Image

from densevit.data.io.writers import encode

SIZE = (48, 80)  # h, w; multiples of 16, so that the blocks of a turned JPEG are those of the upright one
EXIF = [f"exif{i}.jpg" for i in TURNS]
REFUSED = {"document.jpg": "is PDF", "float.tiff": "float"}


def upright() -> Image.Image:
    """Squares of one colour each, whose JPEG is the same whichever way it is turned."""
    squares = np.random.default_rng(0).integers(0, 256, (SIZE[0] // 16, SIZE[1] // 16, 3), dtype=np.uint8)
    return Image.fromarray(squares.repeat(16, 0).repeat(16, 1))


def turned(orientation: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        turn, exif = TURNS[orientation], Image.Exif()
        exif[0x0112] = orientation
        stored = upright() if turn is None else upright().transpose(turn)
        stored.save(path, quality=95, subsampling=0, exif=exif)

    return write


def as_mode(mode: str) -> Callable[[Path], None]:
    return lambda path: upright().convert(mode).save(path)


def of_shape(*shape: int) -> Callable[[Path], None]:
    return lambda path: Image.fromarray(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)).save(path)


def sixteen_bits(channels: int) -> Callable[[Path], None]:
    pixels = np.asarray(upright()).astype(np.uint16)[..., :channels].squeeze() * 257
    return lambda path: Path(path).write_bytes(encode(".png", np.ascontiguousarray(pixels))) and None


def palette(path: Path) -> None:
    upright().convert("P").save(path, transparency=3)


def document(path: Path) -> None:
    path.write_bytes(b"%PDF-1.7\n")


def floats(path: Path) -> None:
    Image.fromarray(np.asarray(upright().convert("L"), np.float32)).save(path)


ZOO: dict[str, Callable[[Path], None]] = {
    "pixel.png": of_shape(1, 1, 3),
    "line.png": of_shape(1, 5000, 3),
    "gray.png": as_mode("L"),
    "gray16.png": sixteen_bits(1),
    "gray-alpha.png": as_mode("LA"),
    "alpha.png": as_mode("RGBA"),
    "palette.png": palette,
    "cmyk.jpg": as_mode("CMYK"),
    "rgb16.png": sixteen_bits(3),
    **{f"exif{i}.jpg": turned(i) for i in TURNS},
    "document.jpg": document,
    "misnamed.jpg": lambda path: upright().save(path, "PNG"),
    "float.tiff": floats,
}


def size_of(name: str) -> tuple[int, int]:
    """h, w of the upright picture."""
    return {"pixel.png": (1, 1), "line.png": (1, 5000)}.get(name, SIZE)


def fill(folder: Path, *, readable: bool = False) -> Path:
    """Writes all of them, or only those that are to be read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in ZOO.items():
        if not (readable and name in REFUSED):
            write(folder / name)
    return folder
