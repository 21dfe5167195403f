"""Image files: what the header says, and the pixels (h x w, or h x w x channels).

The content tells the format, never the suffix. Pillow's reader of that one format parses the header and decodes
nothing, so size and mode are known before memory is spent. Pixels come from OpenCV where speed counts (JPEG, PNG,
still WEBP), from kornia-rs for PNG of 16-bit gray (depth), in half of OpenCV's time, and from Pillow elsewhere.
"""

import io
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from jaxtyping import Shaped, UInt8, UInt16
from kornia_rs.io import decode_image_png_u16
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    features,
)
from PIL.ExifTags import Base as Tag

from densevit.errors import DataError
from densevit.model_card import Palette

log = logging.getLogger(__name__)

SUFFIX_FORMATS: Mapping[str, str] = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".bmp": "BMP",
    ".gif": "GIF", ".jp2": "JPEG 2000", ".avif": "AVIF", ".heic": "HEIC", ".heif": "HEIC",
}  # fmt: skip
"""The image files that are read, by suffix."""

OTHER_IMAGE_SUFFIXES = frozenset(
    {".jxl", ".ppm", ".pgm", ".pnm", ".tga", ".psd", ".svg", ".hdr", ".exr", ".ico", ".j2k", ".jfif", ".jpe"}
    | {".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2"}
)
"""Suffixes of images that are not read; the second line are cameras' raw formats."""

MAX_PIXELS = 178_000_000  # where Pillow, too, refuses: twice its Image.MAX_IMAGE_PIXELS

# Modes that Pillow calls 16-bit gray; the letters are byte orders.
GRAY16 = ("I;16", "I;16L", "I;16B")

# EXIF orientation -> what turns the stored rows upright (EXIF 2.32, 4.6.4.A).
UPRIGHT: dict[int, Callable[[Any], Any]] = {
    2: np.fliplr,
    3: lambda a: a[::-1, ::-1],
    4: np.flipud,
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a.swapaxes(0, 1)[::-1, ::-1],
    8: np.rot90,
}

READERS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "JPEG 2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
}

OPTIONAL = {
    "AVIF": "Pillow 11.3 or later with AVIF (pip install -U pillow)",
    "HEIC": "pillow-heif (pip install 'densevit[heif]')",
}
"""Formats that need what is not everywhere installed."""

LOSSY = ("JPEG", "WEBP", "JPEG 2000", "AVIF", "HEIC")

AVIF_BRANDS = (b"avif", b"avis")
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
HEAD = 64  # bytes that tell the format

# Tags of TIFF 6.0.
BITS = 258
PLANES = 284  # 2: one for each colour
SAMPLE_FORMAT = 339  # 1, the default, unsigned; 2 signed; 3 float
NO_MODE = "unknown pixel mode"  # what Pillow says of a good TIFF whose pixel type it does not know

# What a file starts with. Formats without a reader are named in the error.
SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"), (b"\x89PNG\r\n\x1a\n", "PNG"), (b"BM", "BMP"),
    (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"II+\0", "TIFF"), (b"MM\0+", "big-endian BigTIFF"),
    (b"\x93NUMPY", "NPY"), (b"PK\x03\x04", "ZIP"), (b"PK\x05\x06", "ZIP"), (b"\x76\x2f\x31\x01", "EXR"),
    (b"Pf", "PFM"), (b"PF", "PFM"), (b"\x89HDF\r\n\x1a\n", "HDF5"), (b"MATLAB 7.3", "HDF5"),
    (b"GIF8", "GIF"), (b"%PDF", "PDF"), (b"\0\0\0\x0cjP  ", "JPEG 2000"), (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"), (b"\xff\x0a", "JPEG XL"),
)  # fmt: skip


# PNG's chunks of text, which may hold EXIF, too: `Raw profile type exif`, XMP.
TEXTS = frozenset({b"tEXt", b"zTXt", b"iTXt"})


def detect_format(head: bytes) -> str:
    """Return the format that a file's first `HEAD` bytes tell; "" for none known."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        brands = head[8 : min(int.from_bytes(head[:4], "big"), HEAD)]  # ISO 14496-12: the major brand comes first
        if any(brand in brands for brand in AVIF_BRANDS):
            return "AVIF"
        return "HEIC" if any(brand in brands for brand in HEIC_BRANDS) else "video"
    return next((name for magic, name in SIGNATURES if head.startswith(magic)), "")


def file_format(path: Path) -> str:
    """Return the format of a file that must be there and hold something. Raises DataError if it is missing, empty, or
    no regular file that may be read."""
    return detect_format(read_bytes(path, HEAD))


@dataclass(frozen=True)
class Raster:
    """An image file in memory: header parsed, pixels not yet decoded."""

    path: Path
    data: bytes
    format: str
    header: ImageFile.ImageFile
    scan: int  # where JPEG's compressed data starts; for other formats of no meaning

    @classmethod
    def open(cls, path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> "Raster":
        """Read the file and its header, decoding nothing. Raises DataError naming the file, when it is missing, of
        another format, damaged in the header, or of more than `max_pixels` pixels."""
        path = Path(path)
        kind = file_format(path)
        reader = _reader(path, kind)
        data = read_bytes(path)
        stream = io.BytesIO(data)
        try:
            header = reader(stream)
        except Exception as error:  # a parser over damaged bytes raises anything, IndexError and struct.error too
            if str(error) == NO_MODE:
                raise DataError(
                    f"{path}: a {kind} of pixels that are not read here (64 bits, 16-bit floats, or unsigned 32 bits "
                    "in big-endian order?); store 8 or 16-bit integers, or 32-bit floats."
                ) from error
            raise DataError(f"{path}: its {kind} header is damaged ({_short(error)}).") from error
        width, height = header.size
        if width * height > max_pixels:
            raise DataError(
                f"{path}: {width} x {height} is {width * height:,} pixels; the limit is {max_pixels:,} (max_pixels)."
            )
        return cls(path, data, kind, header, stream.tell())

    @property
    def mode(self) -> str:
        """Pillow's name for the pixel type: L, RGB, P, I;16, F, ..."""
        return self.header.mode

    @property
    def size(self) -> tuple[int, int]:
        """(h, w), upright."""
        width, height = self.header.size
        return (width, height) if self.orientation >= 5 else (height, width)

    @cached_property
    def orientation(self) -> int:
        """EXIF orientation 1 to 8. EXIF that cannot be parsed counts as none, as every viewer has it."""
        if self.format == "TIFF":
            return 1  # Pillow turns these itself, and gives the upright size
        # Pillow decodes a whole PNG to look for an eXIf chunk behind the pixels: ask only where there may be one.
        if self.format == "PNG" and not self.may_hold_exif():
            return 1
        try:
            tag = self.header.getexif().get(Tag.Orientation, 1)
        except Exception:  # see `open`
            return 1
        return tag if tag in UPRIGHT else 1

    @property
    def white_is_zero(self) -> bool:
        """Whether a gray TIFF's 0 is white (PhotometricInterpretation)."""
        return bool(getattr(self.header, "tag_v2", {}).get(Tag.PhotometricInterpretation) == 0)

    def may_hold_exif(self) -> bool:
        """Return whether a PNG may hold EXIF."""
        # Chunk by chunk first: a search through the pixels costs a tenth of decoding them.
        kinds = set(chunk_kinds(self.data))
        return b"eXIf" in kinds or (
            not kinds.isdisjoint(TEXTS) and any(key in self.data for key in (b"Raw profile", b"XML:com.adobe"))
        )

    def text(self, key: str) -> str | None:
        """Return a PNG text chunk; None where there is none."""
        if key not in self.header.info and self.format == "PNG" and key.encode() in self.data:
            self._load()  # the chunk stands behind the pixels
        value = self.header.info.get(key)
        return None if value is None else str(value)

    def palette(self) -> Palette:
        """Return the colours of a palette image; none of another."""
        values = (self._load().getpalette() or []) if self.mode == "P" else []
        return tuple((r, g, b) for r, g, b in zip(values[::3], values[1::3], values[2::3], strict=True))

    def rgb(self) -> UInt8[np.ndarray, "h w 3"]:
        """Return 8-bit RGB, upright. Alpha is dropped; of 16 bits the upper 8 are kept."""
        if self.mode in ("F", "I"):
            raise DataError(
                f"{self.path}: an image of {'float' if self.mode == 'F' else '32-bit integer'} values has no "
                "defined white; store images with 8 or 16 bits. (A depth map belongs under `depths`.)"
            )
        self._warn_of_frames()
        if self.format in ("JPEG", "PNG", "WEBP") and not self.has_frames:  # OpenCV 4 does not decode animations
            return self.apply_orientation(self._opencv())
        tags = getattr(self.header, "tag_v2", {})
        if tags.get(PLANES) == 2 and tags.get(BITS, (8,))[0] == 16 and self.header.info.get("compression") == "raw":
            raise DataError(  # Pillow takes these for 8 bits
                f"{self.path}: a TIFF of 16 bits with a plane for each colour, uncompressed, is not read here; store "
                "its colours interleaved, or compress it."
            )
        pixels = self._load()
        if self.mode in GRAY16:
            gray = (np.asarray(pixels) >> 8).astype(np.uint8)[..., None]
            return self.apply_orientation(np.repeat(~gray if self.white_is_zero else gray, 3, axis=2))
        return self.apply_orientation(np.asarray(pixels.convert("RGB")))

    def stored(self) -> Shaped[np.ndarray, "..."]:
        """Return the numbers as stored, upright: palette indices stay indices, 16 bits stay 16."""
        self._warn_of_frames()
        if self.format == "PNG" and self.mode in GRAY16:
            return self.apply_orientation(self._gray16())
        # Pillow 13 swaps the bytes of what libtiff decompressed from big-endian numbers, which libtiff has swapped.
        if self.format == "TIFF" and self.mode in ("F", "I") and self.data[:2] == b"MM":
            return self._decode(cv2.IMREAD_UNCHANGED)
        pixels = np.asarray(self._load())
        header: Any = self.header
        if self.format == "TIFF" and self.mode == "I" and header.tag_v2.get(SAMPLE_FORMAT, (1,)) == (1,):
            pixels = pixels.view(np.uint32)  # which Pillow takes for signed ones
        inverted = self.white_is_zero and self.mode in ("1", "L")  # Pillow inverts these, but not those of 16 bits
        return self.apply_orientation(~pixels if inverted else pixels)

    def apply_orientation(self, pixels: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        turn = UPRIGHT.get(self.orientation)
        return np.ascontiguousarray(pixels if turn is None else turn(pixels))

    def _warn_of_frames(self) -> None:
        if self.has_frames and self.path not in _warned:
            _warned.add(self.path)
            log.warning("%s: holds several images (an animation, or pages); the first is read.", self.path)

    @cached_property
    def has_frames(self) -> bool:
        """Whether the file holds several images, an animation or pages."""
        try:
            return bool(getattr(self.header, "is_animated", False))
        except Exception:  # see `open`
            return False

    def _opencv(self) -> UInt8[np.ndarray, "h w 3"]:
        # CMYK in BGR first: what OpenCV before 5 makes of it in RGB is not what it makes in BGR.
        order = cv2.IMREAD_COLOR if self.mode == "CMYK" else cv2.IMREAD_COLOR_RGB
        pixels = self._decode(order | cv2.IMREAD_IGNORE_ORIENTATION)
        return np.asarray(pixels[..., ::-1] if self.mode == "CMYK" else pixels, np.uint8)

    def _decode(self, flags: int) -> Shaped[np.ndarray, "..."]:
        self._check_end()
        try:
            pixels = cv2.imdecode(np.frombuffer(self.data, np.uint8), flags)
        except cv2.error as error:
            raise DataError(f"{self.path}: the {self.format} cannot be decoded ({_short(error)}).") from error
        if pixels is None:
            raise DataError(f"{self.path}: the {self.format} is damaged or truncated.")
        return np.asarray(pixels)

    def _gray16(self) -> UInt16[np.ndarray, "h w"]:
        self._check_end()
        width, height = self.header.size
        try:
            pixels: UInt16[np.ndarray, "h w"] = decode_image_png_u16(self.data, (height, width), "mono")[..., 0]
        except Exception as error:  # it raises plain ones
            raise DataError(f"{self.path}: the PNG is damaged or truncated ({_short(error)}).") from error
        return pixels

    def _load(self) -> ImageFile.ImageFile:
        self._check_end()
        try:
            self.header.load()
        except Exception as error:  # see `open`
            raise DataError(f"{self.path}: the {self.format} is damaged or truncated ({_short(error)}).") from error
        return self.header

    def _check_end(self) -> None:
        # OpenCV 4 gives an image, and a line on stderr, for a JPEG that lacks its end. Compressed data never holds
        # FF D9 (T.81, B.1.1.5), so the end is there exactly when these bytes come after the start of the scan.
        if self.format == "JPEG" and self.data.find(b"\xff\xd9", self.scan) < 0:
            raise DataError(f"{self.path}: the JPEG is truncated (no end marker).")
        if self.format == "PNG" and self.data.rfind(b"IEND\xaeB`\x82") < 0:  # with its checksum
            raise DataError(f"{self.path}: the PNG is truncated (no IEND).")
        # Pillow leaves out tags that are cut off, and takes floats for integers without the tag that tells them apart.
        if self.format == "TIFF" and end_of_tags(self.data) > len(self.data):
            raise DataError(f"{self.path}: the TIFF is truncated (some of its tags are missing).")


def end_of_tags(data: bytes) -> int:
    """Return the offset behind the last tag of a TIFF's first image."""
    order: Literal["little", "big"] = "little" if data[:2] == b"II" else "big"
    at, width, count, entry = (8, 8, 8, 20) if 43 in data[2:4] else (4, 4, 2, 12)  # BigTIFF, TIFF
    start = int.from_bytes(data[at : at + width], order)
    return start + count + entry * int.from_bytes(data[start : start + count], order)


def chunk_kinds(data: bytes) -> Iterator[bytes]:
    """Yield the types of a PNG's chunks; each says where the next begins, so that pixels are jumped over."""
    at = 8
    while at + 8 <= len(data):
        yield data[at + 4 : at + 8]
        at += 12 + int.from_bytes(data[at : at + 4], "big")


_warned: set[Path] = set()
"""Files of several images that have been warned of."""


def _reader(path: Path, kind: str) -> type[ImageFile.ImageFile]:
    """Pillow's reader of a format. Raises DataError if the format is not read, or not in this installation."""
    if kind in READERS:
        return READERS[kind]
    if kind == "AVIF" and features.check("avif"):
        from PIL import AvifImagePlugin

        return AvifImagePlugin.AvifImageFile
    if kind == "HEIC":
        try:
            from pillow_heif.as_plugin import HeifImageFile
        except ImportError:
            pass
        else:
            reader: type[ImageFile.ImageFile] = HeifImageFile
            return reader
    if kind in OPTIONAL:
        raise DataError(f"{path}: {kind} needs {OPTIONAL[kind]}; or convert the file to JPEG or PNG.")
    came = f"is {kind}" if kind else "is not an image"
    raise DataError(f"{path}: {came}; images may be {', '.join((*READERS, *OPTIONAL))}.")


def read_bytes(path: Path, count: int = -1) -> bytes:
    """Return the first bytes of a file, or all of them. Raises DataError if it is missing, empty or no regular file: to
    open a FIFO would wait for a writer for ever."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise DataError(f"{str(path)!r}: is {_kind_of_file(mode)}, not a regular file.")
        with open(path, "rb") as file:
            data = file.read(count)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise DataError(f"{str(path)!r}: cannot be read ({reason}).") from error
    if not data:
        raise DataError(f"{path}: the file is empty (0 bytes).")
    return data


def _kind_of_file(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something special")


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
