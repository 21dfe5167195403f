"""Inspects one sample: hashes its files, decodes them as training would, and computes or looks up its statistics.

Where it cannot be read, each of its files is checked by itself, so that no problem hides another.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from densevit.data.datasets.base import Dataset
from densevit.data.fields import check_types
from densevit.data.index.matching import DEPTH_SUFFIXES, IMAGE_SUFFIXES, LABEL_SUFFIXES
from densevit.data.io.arrays import READERS
from densevit.data.io.images import HEAD, SUFFIX_FORMATS, Raster, detect_format, file_format, read_bytes
from densevit.data.io.images import READERS as IMAGE_READERS
from densevit.data.io.readers import CoarseDepth, UnknownUnit, image_size, read_image, read_stored_labels, read_wide
from densevit.data.labels.class_table import LabelError
from densevit.data.validation.cache import StatsCache
from densevit.data.validation.sample_stats import (
    InspectedSample,
    Problem,
    SampleStats,
    compute_stats,
    missing_jpeg_lines,
)
from densevit.errors import DataError
from densevit.ops.geometry import check_intrinsics, is_camera
from densevit.structures import Size

MAPS = {"depth": "depth map", "labels": "label map"}


def inspect_sample(dataset: Dataset, index: int, cache: StatsCache) -> InspectedSample:
    """Check a sample, or take its statistics from the cache if the same bytes were checked under the same options."""
    paths = dataset.files(index)
    checksums: dict[str, str] = {}
    problems: list[Problem] = []
    has_exif: dict[str, bool] = {}
    for role, path in paths.items():
        try:
            data = path.read_bytes()
        except OSError as error:
            problems.append(("missing", role, f"cannot be read ({error.strerror})"))
            continue
        checksums[role] = hashlib.sha256(data).hexdigest()
        detected, named = detect_format(data[:HEAD]), SUFFIX_FORMATS.get(path.suffix.lower())
        if named is not None and detected in SUFFIX_FORMATS.values() and detected != named:
            problems.append(("wrong_suffix", role, f"is named {path.suffix}, but is {detected}"))
        has_exif[role] = b"Exif" in data[:65536] or b"eXIf" in data
    if len(checksums) < len(paths):
        problems += check_files({role: paths[role] for role in checksums})
        return InspectedSample(paths, checksums, SampleStats(problems=tuple(problems)))
    key = cache.key(dataset.names[index], checksums)
    cached = cache.get(key)
    stats = cached or _compute(dataset, index, paths, has_exif)
    if cached is None and key and not any(type_ == "unreadable" for type_, _, _ in stats.problems):
        cache.put(key, stats)
    return InspectedSample(paths, checksums, replace(stats, problems=(*problems, *stats.problems)))


def _compute(dataset: Dataset, index: int, paths: Mapping[str, Path], has_exif: Mapping[str, bool]) -> SampleStats:
    try:
        sample = dataset.read(index)
        check_types(sample)
    except DataError as error:
        type_ = error.kind if isinstance(error, LabelError | UnknownUnit) else "unreadable"
        faults = check_files(paths) or [_unreadable(str(error), paths, type_)]
        fits = False if any(type_ == "size_mismatch" for type_, _, _ in faults) else None
        return SampleStats(problems=(*faults, *_exif_problems(paths, has_exif, fits)))
    except Exception as error:  # a bug of the reader; the sample is unusable all the same
        return SampleStats(problems=(_unreadable(f"{type(error).__name__}: {error}", paths),))
    problems = _exif_problems(paths, has_exif, True)
    lines = missing_jpeg_lines(sample.image)
    if lines and "image" in paths and file_format(paths["image"]) == "JPEG":  # which all decoders accept
        text = f"its last {lines} lines are plain gray, as where a JPEG's data end too early"
        problems.append(("damaged", "image", text))
    if sample.intrinsics is not None and is_camera(sample.intrinsics):
        try:
            check_intrinsics(sample.intrinsics, (sample.image.shape[0], sample.image.shape[1]))
        except DataError as error:
            problems.append(("camera", "image", str(error)))
    stats = compute_stats(sample, paths, tuple(problems), dataset.things)
    if sample.depth is not None and "depth" in paths and getattr(dataset, "depth_of_any_size", False):
        with suppress(DataError):  # a format that only its data set reads
            stats = replace(stats, depth_size=image_size(paths["depth"]))
    return stats


def _exif_problems(paths: Mapping[str, Path], has_exif: Mapping[str, bool], fits: bool | None) -> list[Problem]:
    """Return the image and depth, or else labels, whose EXIF orientations differ, unless their sizes show that both are
    upright.

    Args:
        has_exif: roles whose files may have an orientation.
        fits: whether the upright image has the size of the depth map; None where that is not known.
    """
    role = next((role for role in ("depth", "labels") if role in paths), None)
    if not has_exif.get("image") or role is None:
        return []
    try:
        image = Raster.open(paths["image"])
        other = Raster.open(paths[role]).orientation if has_exif.get(role) else 1
    except DataError:  # reported elsewhere
        return []
    if image.orientation == other:
        return []
    reason = f"has EXIF orientation {image.orientation}, its {MAPS[role]} {other}"
    if image.orientation < 5 or (fits and image.size[0] == image.size[1]):
        return [("exif", "image", f"{reason}: nothing tells whether the map was rotated along")]
    if fits is False:
        return [("exif", "image", f"{reason}: upright, the image is {image.size[0]} x {image.size[1]}")]
    return []  # made from the upright image


def _unreadable(text: str, paths: Mapping[str, Path], type_: str = "unreadable") -> Problem:
    """Return a reader's message, with the file that it names; without paths, so that it can be cached by content."""
    named = next((role for role, path in paths.items() if str(path) in text), "image")
    for role, path in paths.items():
        text = text.replace(f"{path}: ", "").replace(f"{path}:", "line ").replace(str(path), f"its {role}")
    return type_, named, text


class _FileProblem(DataError):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def check_files(paths: Mapping[str, Path]) -> list[Problem]:
    """Return the problems of the files themselves, or of how their sizes fit together."""
    problems: list[Problem] = []
    sizes: dict[str, Size] = {}
    for role, path in paths.items():
        try:
            size = _check(role, path)
        except DataError as error:
            type_ = error.kind if isinstance(error, _FileProblem | CoarseDepth | LabelError) else "damaged"
            problems.append((type_, role, str(error).replace(f"{path}: ", "").replace(str(path), "it")))
        else:
            if size is not None:
                sizes[role] = size
    if image := sizes.pop("image", None):
        for role, (h, w) in sizes.items():
            if (h, w) != image:
                fault = f"is {h} x {w} (h x w), its image {image[0]} x {image[1]}"
                problems.append(("size_mismatch", role, fault))
    return problems


PIXELS: Mapping[str, Callable[[Path], np.ndarray]] = {
    "image": read_image,
    "depth": lambda path: read_wide(path)[0],
    "labels": lambda path: read_stored_labels(path).pixels,
}
"""What decodes a file, by its role; others only their dataset can read."""


def _check(role: str, path: Path) -> Size | None:
    """Return (h, w) of a valid file; None where only its dataset can tell."""
    if path.stat().st_size == 0:
        raise _FileProblem("empty", "0 bytes")
    kind = file_format(path)
    if kind not in READERS and kind not in IMAGE_READERS:
        # A depth map may be in a format that only its dataset reads, as ETH3D's raw floats named .JPG.
        if path.suffix.lower() in (DEPTH_SUFFIXES if role == "depth" else IMAGE_SUFFIXES | LABEL_SUFFIXES):
            raise _FileProblem(
                "not_an_image", f"is {kind}" if kind else f"is no image: it begins with {read_bytes(path, 12)!r}"
            )
        return None
    if role not in PIXELS:
        return None
    height, width = PIXELS[role](path).shape[:2]
    return height, width
