"""Long lists of samples in a few arrays, kept in the user's cache and mapped into memory by every process.

Python's own objects take some 600 bytes a sample, in every worker anew; these 25 to 100, which processes share.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import count, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, overload

import numpy as np

from densevit.data.index.matching import Around, around_of, path_of
from densevit.data.index.paths import PATHS, SampleFiles, file_version, walk
from densevit.data.recordings.distortion import CameraModel
from densevit.errors import StorageError
from densevit.utils import atomic_io

log = logging.getLogger(__name__)

PACKED_FROM = 10_000  # samples; shorter lists stay as they are
MOST_CODES = 4096  # beginnings and ends of the paths of a column
UNUSED_DAYS = 30  # after which an entry of the cache is deleted


Stored = tuple[dict[str, Any], dict[str, np.ndarray]]
"""A list as plain values and arrays."""


class Texts(Sequence[str]):
    """Texts as UTF-8 in one array, `ends[i]` behind the i-th."""

    def __init__(self, content: np.ndarray, ends: np.ndarray) -> None:
        self.content, self.ends = content, ends

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Texts":
        texts = list(texts)
        joined = "".join(texts)
        lengths = map(len, texts if joined.isascii() else map(os.fsencode, texts))
        return cls(np.frombuffer(os.fsencode(joined), np.uint8), np.cumsum(np.fromiter(lengths, np.int64, len(texts))))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[str]:
        content, begin = self.content.tobytes(), 0
        for end in self.ends.tolist():
            yield os.fsdecode(content[begin:end])
            begin = end

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return os.fsdecode(self.content[self.ends[index - 1] if index else 0 : self.ends[index]].tobytes())

    def arrays(self) -> dict[str, np.ndarray]:
        return {"content": self.content, "ends": self.ends}


def _around(name: str, path: Path | None) -> Around | None:
    return None if path is None else around_of(name, str(path))


class PackedPaths:
    """A path for each name, or None: what stands before and behind the name by code, or the whole path."""

    def __init__(self, names: Texts, around: Sequence[Any], codes: np.ndarray) -> None:
        self.names, self.around, self.codes = names, around, codes

    @classmethod
    def of(cls, names: Texts, arounds: Iterable[Around | None]) -> "PackedPaths | None":
        """Return None where the paths do not follow from the names."""
        code_of: dict[Around | None, int] = {}
        codes, rest = np.empty(len(names), np.uint16), iter(arounds)
        for begin in range(0, len(names), MOST_CODES):
            some = list(islice(rest, MOST_CODES))
            code_of |= zip([around for around in dict.fromkeys(some) if around not in code_of], count(len(code_of)))
            if len(code_of) > MOST_CODES:
                return None
            codes[begin : begin + len(some)] = list(map(code_of.__getitem__, some))
        return cls(names, list(code_of), codes)

    def exists(self) -> np.ndarray:
        """Return whether there is a path."""
        there = np.array([around is not None for around in self.around])
        exists: np.ndarray = there[self.codes]
        return exists

    def __getitem__(self, index: int) -> Path | None:
        around = self.around[self.codes[index]]
        return around and Path(path_of(self.names[index], around))


class PackedSamples(Sequence[SampleFiles]):
    """Samples of which names and paths are packed, and every other field is the same object for all."""

    def __init__(self, names: Texts, paths: Mapping[str, PackedPaths], shared: Mapping[str, Any]) -> None:
        self.names, self.paths, self.shared = names, paths, shared

    @classmethod
    def of(cls, samples: Sequence[SampleFiles]) -> "PackedSamples | None":
        """Return None where the samples cannot be packed."""
        names = [files.name for files in samples]
        others = [field.name for field in fields(SampleFiles) if field.name not in ("name", *PATHS)]
        shared = {key: getattr(samples[0], key) for key in others}
        for key, value in shared.items():
            if any(x is not value and not (isinstance(x, str) and x == value) for x in map(attrgetter(key), samples)):
                return None
        columns = {kind: map(_around, names, map(attrgetter(kind), samples)) for kind in PATHS}
        return cls._of(Texts.of(names), columns, shared)

    @classmethod
    def of_paths(cls, images: Mapping[str, Around], maps: Mapping[str, Mapping[str, Around]]) -> "PackedSamples | None":
        """Return the samples of a folder: by name the path of the image and of its map of each kind, in one order. None
        where they cannot be packed."""
        columns = {
            kind: paths.values() if len(paths) == len(images) else map(paths.get, images)
            for kind, paths in {"image": images, **maps}.items()
            if paths
        }
        shared = {x.name: x.default for x in fields(SampleFiles) if x.name not in ("name", *PATHS)}
        return cls._of(Texts.of(images), columns, shared)

    @classmethod
    def _of(
        cls,
        names: Texts,
        columns: Mapping[str, Iterable[Around | None]],
        shared: Mapping[str, Any],
    ) -> "PackedSamples | None":
        paths = {kind: PackedPaths(names, [None], np.zeros(len(names), np.uint16)) for kind in PATHS}
        for kind, column in columns.items():
            packed = PackedPaths.of(names, column)
            if packed is None:
                return None
            paths[kind] = packed
        return cls(names, paths, shared)

    def take(self, indices: Sequence[int]) -> "PackedSamples":
        names = Texts.of(map(self.names.__getitem__, indices))
        paths = {kind: PackedPaths(names, x.around, x.codes[indices]) for kind, x in self.paths.items()}
        return PackedSamples(names, paths, self.shared)

    @classmethod
    def of_stored(cls, tree: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "PackedSamples":
        names = Texts(arrays["content"], arrays["ends"])
        paths = {kind: PackedPaths(names, tree["around"][kind], arrays[kind]) for kind in PATHS}
        shared = {key: np.array(x) if isinstance(x, list) else x for key, x in tree["shared"].items()}
        return cls(names, paths, {**shared, "masks": ()})

    def stored(self) -> Stored | None:
        """Return None where the samples cannot be stored."""
        if self.shared["masks"] or isinstance(self.shared["intrinsics"], Path | CameraModel):
            return None
        around = {kind: column.around for kind, column in self.paths.items()}
        shared = {key: x.tolist() if isinstance(x, np.ndarray) else x for key, x in self.shared.items()}
        codes = {kind: column.codes for kind, column in self.paths.items()}
        return {"around": around, "shared": {**shared, "masks": None}}, {**self.names.arrays(), **codes}

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> SampleFiles: ...
    @overload
    def __getitem__(self, index: slice) -> list[SampleFiles]: ...
    def __getitem__(self, index: int | slice) -> SampleFiles | list[SampleFiles]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        paths: dict[str, Any] = {kind: column[index] for kind, column in self.paths.items()}
        return SampleFiles(self.names[index], **paths, **self.shared)


def take(samples: Sequence[SampleFiles], indices: Sequence[int]) -> Sequence[SampleFiles]:
    return samples.take(indices) if isinstance(samples, PackedSamples) else [samples[i] for i in indices]


def column(samples: Sequence[SampleFiles], field: str) -> Sequence[Any]:
    """Return a field of all samples, but for paths."""
    if isinstance(samples, PackedSamples):
        return samples.names if field == "name" else [samples.shared[field]] * len(samples)
    return [getattr(files, field) for files in samples]


def has(samples: Sequence[SampleFiles], kind: str) -> np.ndarray:
    """Return whether each sample has a path of a kind."""
    if isinstance(samples, PackedSamples):
        return samples.paths[kind].exists()
    return np.array([getattr(files, kind) is not None for files in samples], bool)


def folders_below(root: Path) -> Iterator[str]:
    """Return the root and all folders below it, links followed."""
    return (path for path, _ in walk(root))


def state_of(paths: Iterable[str | Path]) -> dict[str, str]:
    """Return when each folder or file changed last."""
    return {str(path): _version(path) for path in paths}


def _version(path: str | Path) -> str:
    try:
        return file_version(Path(path))
    except OSError:
        return ""


def load(entry: Path) -> Stored | None:
    """Return what an entry holds, if folders and files are as they were; its arrays are mapped, not read."""
    try:
        content = json.loads(entry.read_bytes())
        if any(_version(path) != was for path, was in content["state"].items()):
            return None
        folder = entry.with_name(content["arrays"])
        arrays = {path.stem: np.load(path, mmap_mode="r") for path in folder.iterdir()}
        os.utime(folder)  # used now
        return dict(content["tree"]), arrays
    except (OSError, EOFError, ValueError, LookupError, TypeError):
        return None  # none yet, or damaged: it is made anew


def store(entry: Path, state: Mapping[str, str], stored: Stored | None, started: int) -> None:
    """Add a list to the cache, and delete those that were not used for long; failing costs time only, and is logged. A
    list is not added if something changed since two seconds before `started` (nanoseconds), when its making began."""
    if stored is None or any(int(x.split()[0]) > started - 2 * 10**9 for x in state.values() if x):
        return
    tree, arrays = stored
    digest = hashlib.sha256(json.dumps(state).encode()).hexdigest()[:12]
    folder = entry.with_name(f"{entry.stem}-{digest}")  # never replaced: other machines may have it mapped
    content = {"state": state, "arrays": folder.name, "tree": tree}
    try:
        atomic_io.make_folder(entry.parent)
        atomic_io.remove_stale_temporaries(entry.parent)
        if not folder.is_dir():
            with atomic_io.atomic_folder(folder) as temporary:
                for name, array in arrays.items():
                    np.save(temporary / f"{name}.npy", array)
        atomic_io.write_text(entry, json.dumps(content))
        for other in entry.parent.glob("*-*"):
            if time.time() - other.stat().st_mtime > UNUSED_DAYS * 86400:
                atomic_io.remove(other)
    except (OSError, StorageError) as error:
        log.warning("%s: the list of the data set is not cached (%s).", entry, error)
