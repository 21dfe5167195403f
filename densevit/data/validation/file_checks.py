"""Finds out why a sample cannot be read: each of its files is checked by itself, so that no problem hides another."""

from collections.abc import Mapping
from pathlib import Path

from densevit.data.index.matching import DEPTH_SUFFIXES, IMAGE_SUFFIXES, LABEL_SUFFIXES
from densevit.data.io.arrays import READERS, read_array
from densevit.data.io.images import MAX_PIXELS, Raster, file_format
from densevit.data.io.images import READERS as IMAGE_READERS
from densevit.data.io.readers import read_stored_labels
from densevit.data.labels.errors import LabelError
from densevit.data.validation.sample_stats import Problem
from densevit.errors import DataError
from densevit.structures import Size

DEPTH_MODES = ("F", "I", "I;16", "I;16L", "I;16B")  # Pillow's modes of one channel with more than 8 bits


class _FileProblem(Exception):
    def __init__(self, type_: str, reason: str) -> None:
        super().__init__(reason)
        self.type = type_


def check_files(paths: Mapping[str, Path]) -> list[Problem]:
    """Problems of the files themselves, or of how their sizes fit together."""
    problems: list[Problem] = []
    sizes: dict[str, Size] = {}
    for role, path in paths.items():
        try:
            size = _check(role, path)
        except _FileProblem as problem:
            problems.append((problem.type, role, str(problem)))
        except DataError as error:
            problems.append(("damaged", role, _without_path(error, path)))
        else:
            if size is not None:
                sizes[role] = size
    return problems + _mismatches(sizes)


def _check(role: str, path: Path) -> Size | None:
    """(h, w) of a valid file; None where only its dataset can tell."""
    if path.stat().st_size == 0:
        raise _FileProblem("empty", "0 bytes")
    kind = file_format(path)
    if kind not in READERS and kind not in IMAGE_READERS:
        # A depth map may be in a format that only its dataset reads, as ETH3D's raw floats named .JPG.
        if path.suffix.lower() in (DEPTH_SUFFIXES if role == "depth" else IMAGE_SUFFIXES | LABEL_SUFFIXES):
            raise _FileProblem(
                "not_an_image", f"is {kind}" if kind else f"is no image: it begins with {_first_bytes(path)!r}"
            )
        return None
    if role == "image":
        height, width = Raster.open(path).rgb().shape[:2]
        return height, width
    if role == "depth":
        return _check_depth(path, kind)
    return _check_labels(path) if role == "labels" else None


def _check_depth(path: Path, kind: str) -> Size | None:
    if kind in READERS:
        shape = [n for n in read_array(path, kind, MAX_PIXELS).shape if n != 1]
        return (shape[0], shape[1]) if len(shape) == 2 else None
    raster = Raster.open(path)
    if raster.mode not in DEPTH_MODES:
        what = "8 bits" if raster.mode in ("L", "P", "1", "LA") else f"colours ({raster.mode})"
        raise _FileProblem("coarse_depth", f"is a {kind} of {what}: too coarse for metres, and of no known unit")
    height, width = raster.stored().shape[:2]
    return height, width


def _check_labels(path: Path) -> Size:
    try:
        height, width = read_stored_labels(path).pixels.shape[:2]
    except LabelError as error:
        raise _FileProblem(error.kind, _without_path(error, path)) from None
    return height, width


def _mismatches(sizes: Mapping[str, Size]) -> list[Problem]:
    image = sizes.get("image")
    return [
        ("size_mismatch", role, f"is {size[0]} x {size[1]} (h x w), its image {image[0]} x {image[1]}")
        for role, size in sizes.items()
        if image is not None and size != image
    ]


def _without_path(error: DataError, path: Path) -> str:
    return str(error).replace(f"{path}: ", "").replace(str(path), "it")


def _first_bytes(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(12)
