"""Seeing one sample: its files hashed, then decoded as training would and measured, unless the same bytes are known."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from densevit.data.datasets.base import Dataset
from densevit.data.io.images import HEAD, SUFFIX_FORMATS, Raster, file_format, sniff
from densevit.data.labels.errors import LabelError
from densevit.data.validation.cache import StatsCache
from densevit.data.validation.file_checks import probe
from densevit.data.validation.sample_stats import Look, Problem, Seen, lost_lines, measure
from densevit.errors import DataError

MAPS = {"depth": "depth map", "labels": "label map"}


def inspect_sample(dataset: Dataset, index: int, memory: StatsCache) -> Seen:
    """Looks at a sample, or remembers the look if the same bytes were seen before under the same options."""
    paths = dataset.files(index)
    sums: dict[str, str] = {}
    problems: list[Problem] = []
    turned: dict[str, bool] = {}
    for role, path in paths.items():
        try:
            data = path.read_bytes()
        except OSError as error:
            problems.append(("missing", role, f"cannot be read ({error.strerror})"))
            continue
        sums[role] = hashlib.sha256(data).hexdigest()
        problems += _suffix_problems(role, path, data)
        turned[role] = b"Exif" in data[:65536] or b"eXIf" in data
    if len(sums) < len(paths):
        return Seen(paths, sums, Look(problems=(*problems, *probe({role: paths[role] for role in sums}))))
    key = memory.key(sums)
    kept = memory.get(key)
    look = kept or _look(dataset, index, paths, turned)
    if kept is None and key and not any(kind == "unreadable" for kind, _, _ in look.problems):
        memory.put(key, look)
    return Seen(paths, sums, replace(look, problems=(*problems, *look.problems)))


def _suffix_problems(role: str, path: Path, data: bytes) -> list[Problem]:
    found, said = sniff(data[:HEAD]), SUFFIX_FORMATS.get(path.suffix.lower())
    if said is None or found not in SUFFIX_FORMATS.values() or found == said:
        return []
    return [("renamed", role, f"is named {path.suffix}, but is {found}")]


def _look(dataset: Dataset, index: int, paths: Mapping[str, Path], turned: Mapping[str, bool]) -> Look:
    try:
        sample = dataset.read(index)
    except DataError as error:
        kind = error.kind if isinstance(error, LabelError) else "unreadable"
        found = probe(paths) or [_unreadable(str(error), paths, kind)]
        fits = False if any(kind == "size_mismatch" for kind, _, _ in found) else None
        return Look(problems=(*found, *_exif(paths, turned, fits)))
    except Exception as error:  # a reader's own fault; the sample is unusable all the same
        return Look(problems=(_unreadable(f"{type(error).__name__}: {error}", paths),))
    return measure(sample, paths, (*_exif(paths, turned, True), *_hole(paths, sample.image)))


def _hole(paths: Mapping[str, Path], image: UInt8[np.ndarray, "h w 3"]) -> list[Problem]:
    """A JPEG that decodes, though a part of it is gone: all decoders take it."""
    lines = lost_lines(image)
    if not lines or "image" not in paths or file_format(paths["image"]) != "JPEG":
        return []
    return [("damaged", "image", f"its last {lines} lines are plain gray, as where a JPEG's data end too early")]


def _exif(paths: Mapping[str, Path], turned: Mapping[str, bool], fits: bool | None) -> list[Problem]:
    """Image and depth, or else labels, whose EXIF orientations differ, unless their sizes show that both are upright.

    Args:
        turned: roles whose files may have an orientation.
        fits: whether the upright image has the size of the depth map; None where that is not known.
    """
    role = next((role for role in ("depth", "labels") if role in paths), None)
    if not turned.get("image") or role is None:
        return []
    try:
        image = Raster.open(paths["image"])
        other = Raster.open(paths[role]).orientation if turned.get(role) else 1
    except DataError:  # its fault is told elsewhere
        return []
    if image.orientation == other:
        return []
    reason = f"has EXIF orientation {image.orientation}, its {MAPS[role]} {other}"
    if image.orientation < 5 or (fits and image.size[0] == image.size[1]):
        return [("exif", "image", f"{reason}: nothing tells whether the map was turned along")]
    if fits is False:
        return [("exif", "image", f"{reason}: upright, the image is {image.size[0]} x {image.size[1]}")]
    return []  # made from the upright image


def _unreadable(text: str, paths: Mapping[str, Path], kind: str = "unreadable") -> Problem:
    """The message of a reader, about the file that it names, in words that hold for the same bytes elsewhere."""
    named = next((role for role, path in paths.items() if str(path) in text), "image")
    for role, path in paths.items():
        text = text.replace(f"{path}: ", "").replace(str(path), f"its {role}")
    return kind, named, text
