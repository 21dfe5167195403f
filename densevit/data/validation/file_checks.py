"""What is wrong with the files of a sample that cannot be read: each by itself, so that no fault hides another."""

from collections.abc import Mapping
from pathlib import Path

from densevit.data.index.matching import DEPTH_SUFFIXES, IMAGE_SUFFIXES, LABEL_SUFFIXES
from densevit.data.io.arrays import READERS, read_array
from densevit.data.io.images import MAX_PIXELS, Raster, file_format
from densevit.data.io.images import READERS as PICTURES
from densevit.data.io.readers import read_label_picture
from densevit.data.labels.errors import LabelError
from densevit.data.validation.sample_stats import Problem
from densevit.errors import DataError
from densevit.structures import Size

WIDE = ("F", "I", "I;16", "I;16L", "I;16B")  # Pillow's modes of one channel with more than 8 bits


class _Fault(Exception):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def probe(paths: Mapping[str, Path]) -> list[Problem]:
    """The faults of the files, or of how they fit together."""
    problems: list[Problem] = []
    sizes: dict[str, Size] = {}
    for role, path in paths.items():
        try:
            size = _examine(role, path)
        except _Fault as fault:
            problems.append((fault.kind, role, str(fault)))
        except DataError as error:
            problems.append(("damaged", role, _own(error, path)))
        else:
            if size is not None:
                sizes[role] = size
    return problems + _mismatches(sizes)


def _examine(role: str, path: Path) -> Size | None:
    """The size of a file that is sound; None where only its data set can tell."""
    if path.stat().st_size == 0:
        raise _Fault("empty", "0 bytes")
    kind = file_format(path)
    if kind not in READERS and kind not in PICTURES:
        # A depth map may be of a form that only its data set knows, ETH3D's floats named .JPG say.
        if path.suffix.lower() in (DEPTH_SUFFIXES if role == "depth" else IMAGE_SUFFIXES | LABEL_SUFFIXES):
            raise _Fault("not_a_picture", f"is {kind}" if kind else f"is no picture: it begins with {_head(path)!r}")
        return None
    if role == "image":
        height, width = Raster.open(path).rgb().shape[:2]
        return height, width
    if role == "depth":
        return _examine_depth(path, kind)
    return _examine_labels(path) if role == "labels" else None


def _examine_depth(path: Path, kind: str) -> Size | None:
    if kind in READERS:
        shape = [n for n in read_array(path, kind, MAX_PIXELS).shape if n != 1]
        return (shape[0], shape[1]) if len(shape) == 2 else None
    raster = Raster.open(path)
    if raster.mode not in WIDE:
        what = "8 bits" if raster.mode in ("L", "P", "1", "LA") else f"colours ({raster.mode})"
        raise _Fault("coarse_depth", f"is a {kind} of {what}: too coarse for metres, and of no known unit")
    height, width = raster.stored().shape[:2]
    return height, width


def _examine_labels(path: Path) -> Size:
    try:
        height, width = read_label_picture(path).pixels.shape[:2]
    except LabelError as error:
        raise _Fault(error.kind, _own(error, path)) from None
    return height, width


def _mismatches(sizes: Mapping[str, Size]) -> list[Problem]:
    image = sizes.get("image")
    return [
        ("size_mismatch", role, f"is {size[0]} x {size[1]} (h x w), its image {image[0]} x {image[1]}")
        for role, size in sizes.items()
        if image is not None and size != image
    ]


def _own(error: DataError, path: Path) -> str:
    return str(error).replace(f"{path}: ", "").replace(str(path), "it")


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(12)
