"""Paths of a data set: inside their root, and there. Whole lists are checked at opening, before any training."""

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeVar

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from densevit.data.recordings.distortion import CameraModel
from densevit.errors import DataError
from densevit.utils.atomic_io import user_cache
from densevit.utils.json_files import read_text
from densevit.version import __version__

log = logging.getLogger(__name__)
Name = TypeVar("Name")

Subset = Annotated[
    Literal["full", "available"],
    Field(description="`available` takes the samples that are there, and says how many are not."),
]
"""What to do when listed files are missing: refuse and name the first five, or take the others and say how many.

If none is there, that is an error in both cases.
"""


PATHS = ("image", "depth", "labels", "normals", "segments")
"""The fields of `SampleFiles` that are one file each."""


@dataclass(frozen=True, eq=False)
class SampleFiles:
    """Where one sample comes from."""

    name: str  # unique in its data set
    image: Path
    depth: Path | None = None
    labels: Path | None = None
    normals: Path | None = None
    segments: Path | None = None
    masks: tuple[Path, ...] = ()  # depth is valid where all of them are above 0
    # a file of them need not be there; a model where lens or size are known
    intrinsics: Float64[np.ndarray, "3 3"] | CameraModel | Path | None = None
    depth_intrinsics: Float64[np.ndarray, "3 3"] | None = None  # where another camera took the depth map
    pose: Float64[np.ndarray, "4 4"] | None = None  # camera to world, in metres
    time: float | None = None  # in seconds
    split: str | None = None

    def paths(self) -> dict[str, Path]:
        """Return the files that must be there, by what they hold."""
        masks = {f"mask {i}": path for i, path in enumerate(self.masks, 1)}
        kinds = {name: getattr(self, name) for name in PATHS} | masks
        return {kind: path for kind, path in kinds.items() if path is not None}


@dataclass(frozen=True)
class MissingItem:
    """Something that a data set should have and lacks, or has twice."""

    kind: Literal["missing", "unpaired", "left_out", "duplicate_name", "no_ground_truth"]
    where: str  # a path or a name
    reason: str


_collected: ContextVar[list[MissingItem] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_missing() -> Iterator[list[MissingItem]]:
    """Let data sets that are opened inside keep what is there and list what is missing, instead of raising an error."""
    items: list[MissingItem] = []
    token = _collected.set(items)
    try:
        yield items
    finally:
        _collected.reset(token)


def is_collecting() -> bool:
    return _collected.get() is not None


def record_missing(items: Iterable[MissingItem], subset: Subset = "full") -> bool:
    """Add to the list of `collect_missing`; False outside of it, where the caller raises the error itself. `subset`:
    under `available` items are left out on purpose rather than missing."""
    collected = _collected.get()
    if collected is None:
        return False
    collected += items if subset == "full" else [replace(item, kind="left_out") for item in items]
    return True


def list_entry(root: Path, options: Sequence[object]) -> Path | None:
    """Return the file in the user's cache for the list of samples of a root and options; None where there is no
    cache."""
    key = json.dumps([__version__, str(root.resolve()), str(root), *options], default=str)
    folder = user_cache("datasets")
    return None if folder is None else folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def walk(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the folder and all below it, each with the names of its files, also behind links but for those to a folder
    that holds them."""
    above = {str(root): {_identity(root)}}
    for top, folders, names in os.walk(root, followlinks=True):
        holding = above.pop(top)
        inner = {name: _identity(Path(top, name)) for name in folders}
        folders[:] = [name for name, identity in inner.items() if identity not in holding]
        above |= {str(Path(top, name)): holding | {inner[name]} for name in folders}
        yield top, names


def _identity(folder: Path) -> object:
    try:
        stat = folder.stat()
    except OSError:  # gone meanwhile
        return folder
    return stat.st_dev, stat.st_ino


class Listing:
    """Tells `path in listing` by listing each folder once: 50,000 single look-ups take minutes on a network disk.

    Links to nothing are not in it.
    """

    def __init__(self) -> None:
        self._folders: dict[str, frozenset[str]] = {}

    def __contains__(self, path: Path) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = self._names(folder)
        return name in self._folders[folder]

    @staticmethod
    def _names(folder: str) -> frozenset[str]:
        try:
            with os.scandir(folder or ".") as entries:
                return frozenset(e.name for e in entries if not e.is_symlink() or Path(e).exists())
        except OSError:
            return frozenset()


def first_five(items: Iterable[object]) -> str:
    """Return the beginning of a list for an error message, one a line."""
    items = list(items)
    more = [f"... and {len(items) - 5:,} more"] if len(items) > 5 else []
    return "".join(f"\n  {item}" for item in [*items[:5], *more])


def tell_apart(names: Sequence[Name], whole: Sequence[Name]) -> list[Name]:
    """Return the names, of those that occur several times their whole forms.

    >>> tell_apart(["a", "b", "a"], ["a.png", "b.png", "a.jpg"])
    ['a.png', 'b', 'a.jpg']
    """
    count = Counter(names)
    return [name if count[name] == 1 else longer for name, longer in zip(names, whole, strict=True)]


def keep_present(samples: Sequence[SampleFiles], subset: Subset, what: str) -> list[SampleFiles]:
    """Return the samples whose files are all there. `what`: the data set and split, for the message. Raises DataError
    if there are no samples; files are missing and `subset` is full, or no sample is complete; with the count and the
    first five.
    """
    if not samples and not record_missing([]):
        raise DataError(f"{what}: no samples; the list of them names none.")
    listing = Listing()
    present = [sample for sample in samples if all(path in listing for path in sample.paths().values())]
    if len(present) == len(samples):
        return present
    missing = [path for sample in samples for path in sample.paths().values() if path not in listing]
    reason = "no such file, though the data set lists it"
    if record_missing([MissingItem("missing", str(path), reason) for path in dict.fromkeys(missing)], subset):
        return present
    text = f"{what}: {len(samples) - len(present):,} of {len(samples):,} samples lack a file:{first_five(missing)}"
    if subset == "full" or not present:
        hint = "" if subset == "available" else "\nFor a part of the data set, set `subset: available`."
        raise DataError(text + hint)
    log.warning("%s\nGoing on with the %s that are there.", text, f"{len(present):,}")
    return present


def find_files(root: Path, patterns: Iterable[str], expected: str) -> list[Path]:
    """Return the files of the first pattern that matches any, sorted; `**` goes through folders. Raises DataError if
    none does."""
    patterns = list(patterns)
    for pattern in patterns:
        if files := glob_visible(root, pattern):
            return files
    raise DataError(f"{root}: no {' or '.join(patterns)}; {expected}")


def file_version(path: Path) -> str:
    """Return what changes when a file is written anew."""
    return f"{path.stat().st_mtime_ns} {path.stat().st_size}"


def glob_visible(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a pattern, sorted; not the hidden ones, such as `._0001.jpg`, which a Mac writes beside each
    file."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def first_folder(root: Path, folders: Iterable[str], holding: str) -> Path:
    """Return the first of the folders under `root` that has the file or folder `holding`; the root where none has."""
    return next((root / folder for folder in folders if (root / folder / holding).exists()), root)


def read_names(path: Path) -> list[str]:
    """Return the names in a list of images or scenes, one a line. Raises DataError if it is not there, empty, or leads
    out of the data set."""
    names = check_inside(read_text(path, "the list").split(), path)
    if not names:
        raise DataError(f"{path}: the list is empty.")
    return names


def confine(root: Path, text: str, *, allow_outside: bool) -> Path:
    """Return a path that a list of files names, relative to `root`; it must not lead out, by `..`, `/` or a link.
    Raises DataError if it does, or is no path at all."""
    if "\0" in text or "://" in text or not text.strip():
        raise DataError(f"{text!r} in {root}: expected a file path relative to the root.")
    path = root / PurePosixPath(text.replace("\\", "/"))
    try:
        resolved = path.resolve()
    except RuntimeError:  # of Python until 3.12; later ones find no file
        raise DataError(f"{text!r} in {root}: links that lead in a circle.") from None
    if not allow_outside and not resolved.is_relative_to(root.resolve()):
        meant = "If that is meant: `allow_outside_root: true` in a config, or --allow-outside-root."
        raise DataError(f"{text!r} leads out of {root}. {meant}")
    return path


def check_inside(names: Iterable[str], source: Path) -> list[str]:
    """Return the names of files or folders in a list, once none leads out of the data set; links are followed. Raises
    DataError if one leads out of the data set, by `..` or `/`, or is no path at all."""
    names = list(names)
    for name in names:
        if not name or "\0" in name or name.startswith("/") or ".." in name.replace("\\", "/").split("/"):
            raise DataError(f"{source}: expected names in the data set, got {name!r}.")
    return names
