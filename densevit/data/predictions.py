"""Saved predictions of any system, depth or classes, matched to the images of a data set."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32, Int64

from densevit.data.datasets.base import Dataset
from densevit.data.index.manifest import read_table
from densevit.data.index.matching import DEPTH_SUFFIXES, LABEL_SUFFIXES, NORMAL_SUFFIXES, Walk, match_names, to_nfc
from densevit.data.index.paths import confine, first_five
from densevit.data.io.normals import Axes, read_normals
from densevit.data.io.readers import as_array, read_depth, read_values
from densevit.data.io.samples import read_label_map
from densevit.data.labels.class_table import ClassTable
from densevit.errors import DataError
from densevit.model_card import Kind


class SavedFiles:
    """One saved file per image of a data set, of any size, matched by name or by a list.

    A file belongs to the image of the same path up to the suffix. For images without such a file, words such as `rgb`
    or `depth` in the names are left out; then the ends of the paths are compared, where only one file fits:
    `out/kitchen/0001.png` for `kitchen/0001`, or the only `0001.png`; then names that hold a folder,
    `kitchen_0001.png` or `kitchen__0001.png`.

    Args:
        names: those of the data set.
        suffix: `.png` or `.labels.png` say, where the folder holds each map in several formats, or more than the maps.
        manifest: CSV with the columns `name` and `prediction` (a path below the folder), or JSONL with these keys,
            where names do not match.
        allow_outside: the list may name files that lie elsewhere.

    Raises:
        DataError: maps are missing or ambiguous; with the count and the first five.
    """

    suffixes: ClassVar[frozenset[str]]  # of the files that count, unless the user names one

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        *,
        suffix: str | None = None,
        manifest: Path | None = None,
        allow_outside: bool = False,
    ) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder of predictions.")
        self.folder = folder
        if manifest is None:
            usual = self.suffixes if not suffix else frozenset([f".{suffix}" if suffix.isalnum() else suffix])
            self.paths = _match_by_name(folder, names, frozenset(word.lower() for word in usual))
        else:
            self.paths = _match_by_list(folder, names, manifest, allow_outside)


class SavedMaps(SavedFiles):
    """Saved depth maps of any size.

    Args:
        kind: metric: metres; affine and disparity: numbers without unit, taken as stored.
        scale: stored units per metre, whatever files say; None: as `read_depth` takes it.
        files: see `SavedFiles`.
    """

    suffixes = DEPTH_SUFFIXES

    def __init__(
        self, folder: Path, names: Sequence[str], *, kind: Kind = "metric", scale: float | None = None, **files: Any
    ) -> None:
        super().__init__(folder, names, **files)
        self.kind, self.scale = kind, scale

    def read(self, name: str) -> Float32[np.ndarray, "h w"]:
        """Return the map. No value is 0 in metric maps and NaN in others. Metres may be infinite."""
        path = self.paths[name]
        return read_depth(path, self.scale, infinite=True) if self.kind == "metric" else read_values(path)


class SavedLabels(SavedFiles):
    """Saved label maps: gray or palette PNG of 8 or 16 bits, TIFF, BMP, NPY; with a table also their colours.

    Args:
        table: what the stored numbers mean; None takes them for the positions of the classes.
        files: see `SavedFiles`.
    """

    suffixes = LABEL_SUFFIXES

    def __init__(self, folder: Path, names: Sequence[str], *, table: ClassTable | None = None, **files: Any) -> None:
        super().__init__(folder, names, **files)
        self.table = table

    def read(self, name: str) -> Int64[np.ndarray, "h w"]:
        """Return the class ids; what is no class of the data counts as wrong."""
        return read_label_map(self.paths[name], self.table)


class SavedNormals(SavedFiles):
    """Saved normals: RGB PNG of 8 or 16 bits, NPY, EXR (densevit.data.io.normals).

    Args:
        axes: of the files.
        files: see `SavedFiles`.
    """

    suffixes = NORMAL_SUFFIXES

    def __init__(self, folder: Path, names: Sequence[str], *, axes: Axes = "opencv", **files: Any) -> None:
        super().__init__(folder, names, **files)
        self.axes = axes

    def read(self, name: str) -> Float32[np.ndarray, "h w 3"]:
        """Return the unit normals in OpenCV's axes; 0 where there is none."""
        return read_normals(self.paths[name], self.axes)


class GivenValues:
    """Predictions from Python, one per image of a data set: by name, in the order of the data, or computed.

    Args:
        data: the data set whose images they are for.
        values: name -> array, a sequence of arrays, or a function of the image (uint8 h w 3, RGB) that returns one.

    Raises:
        DataError: some images have none.
    """

    missing: ClassVar[float | np.int64]  # stands for masked entries

    def __init__(self, data: Dataset, values: Any) -> None:
        self.data, self.values = data, values
        self.indices = {name: index for index, name in enumerate(data.names)}
        if callable(values):
            return
        if isinstance(values, Mapping):
            if missing := [name for name in data.names if name not in values]:
                what = f"no prediction for {len(missing):,} of {len(data):,} images"
                raise DataError(f"predictions: {what}:{first_five(missing)}")
        elif not hasattr(values, "__getitem__"):
            raise DataError(f"predictions: {type(values).__name__} is no sequence; give a list, a dict or a function.")
        elif len(values) != len(data):
            raise DataError(
                f"predictions: {len(values):,} for {len(data):,} images; give one for each, in their order."
            )

    def value(self, name: str) -> np.ndarray:
        """Raise DataError if it is no array h w of real numbers."""
        if callable(self.values):
            value = self.values(self.data.read(self.indices[name]).image)
        elif isinstance(self.values, Mapping):
            value = self.values[name]
        else:
            value = self.values[self.indices[name]]
        array = as_array(value, self.missing)
        if array.ndim != 2 or array.dtype.kind not in "iuf":
            raise DataError(f"prediction for '{name}': {array.dtype} of shape {array.shape}; it is numbers h w.")
        return array


class GivenMaps(GivenValues):
    """Depth maps from Python: metres, or numbers without unit; see `SavedMaps` for `kind`."""

    scale: float | None = None
    missing: ClassVar[float | np.int64] = np.nan

    def __init__(self, data: Dataset, values: Any, *, kind: Kind = "metric") -> None:
        super().__init__(data, values)
        self.kind = kind

    def read(self, name: str) -> Float32[np.ndarray, "h w"]:
        """Return the map. No value is 0 in metric maps and NaN in others. Metres may be infinite."""
        values = self.value(name).astype(np.float32)
        if self.kind == "metric":
            return np.where(values > 0, values, np.float32(0))
        return np.where(np.isfinite(values), values, np.float32(np.nan))


DepthMaps = SavedMaps | GivenMaps


def read_with_gaps(maps: DepthMaps, name: str) -> Float32[np.ndarray, "h w"]:
    """Return the map of an image with NaN where it has no value."""
    values = maps.read(name)
    return np.where(values > 0, values, np.float32(np.nan)) if maps.kind == "metric" else values


class GivenLabels(GivenValues):
    """Label maps from Python: positions of the classes."""

    missing: ClassVar[float | np.int64] = np.int64(255)

    def read(self, name: str) -> Int64[np.ndarray, "h w"]:
        """Return the class ids; what is no class of the data counts as wrong."""
        ids = self.value(name)
        if ids.dtype.kind not in "iu":
            raise DataError(f"prediction for '{name}': {ids.dtype} values; class ids are whole numbers.")
        return np.asarray(ids.astype(np.int64))


def _match_by_name(folder: Path, names: Sequence[str], suffixes: frozenset[str]) -> dict[str, Path]:
    paths: dict[str, list[Path]] = defaultdict(list)
    for path in map(Path, Walk(folder, allow_outside=True).files(str(folder))):
        suffix = next((s for s in suffixes if path.name.lower().endswith(s)), None)
        if suffix is not None:
            paths[to_nfc(path.relative_to(folder).as_posix()[: -len(suffix)])].append(path)
    if not paths:
        raise DataError(f"{folder}: holds no such maps ({', '.join(sorted(suffixes))}).")
    try:
        matched = match_names(list(names), list(paths))
    except DataError as error:
        raise DataError(f"{folder}: {error}\nChoose by --suffix, or list them in a --manifest.") from None
    ends: dict[str, list[str]] = defaultdict(list)
    for key in paths:
        ends[PurePosixPath(key).name].append(key)
    for name in names:
        if name not in matched and (match := _by_ending(name, ends) or _by_folder_in_name(name, ends)):
            matched[name] = match
    _check_complete(folder, names, matched, paths)
    _check_unique(folder, names, matched)
    several = [
        f"{name}: {', '.join(p.name for p in paths[matched[name]])}" for name in names if len(paths[matched[name]]) > 1
    ]
    if several:
        raise DataError(
            f"{folder}: {len(several):,} maps come in several formats, choose by suffix:{first_five(several)}"
        )
    return {name: paths[matched[name]][0] for name in names}


def _match_by_list(folder: Path, names: Sequence[str], manifest: Path, allow_outside: bool) -> dict[str, Path]:
    listed: dict[str, Path] = {}
    for number, cells in read_table(manifest):
        values = [cells.get(column) for column in ("name", "prediction")]
        name, file = ("" if value is None else str(value).strip() for value in values)
        if not name or not file:
            came = ", ".join(map(repr, cells)) or "nothing"
            raise DataError(f"{manifest}:{number}: lacks `name` or `prediction`; it has {came}.")
        if name in listed:
            raise DataError(f"{manifest}:{number}: {name} stands in it twice.")
        listed[name] = confine(folder, file, allow_outside=allow_outside)
    _check_complete(manifest, names, listed, listed)
    gone = [str(listed[name]) for name in names if not listed[name].is_file()]
    if gone:
        raise DataError(f"{manifest}: {len(gone):,} of its files are not there:{first_five(gone)}")
    return {name: listed[name] for name in names}


def _check_complete(source: Path, names: Sequence[str], matched: Mapping[str, object], there: Iterable[str]) -> None:
    missing = [name for name in names if name not in matched]
    if missing:
        others = ", ".join(list(there)[:3])
        came = f"\nIt has {others}, ..." if others else "\nIt is empty."
        raise DataError(f"{source}: no map for {len(missing):,} of {len(names):,} images:{first_five(missing)}{came}")


def _check_unique(folder: Path, names: Sequence[str], matched: Mapping[str, str]) -> None:
    owners: dict[str, list[str]] = defaultdict(list)
    for name in names:
        owners[matched[name]].append(name)
    shared = [f"{key}: {', '.join(first_of)}" for key, first_of in owners.items() if len(first_of) > 1]
    if shared:
        raise DataError(f"{folder}: {len(shared):,} maps would stand for several images each:{first_five(shared)}")


def _by_ending(name: str, keys: Mapping[str, Sequence[str]]) -> str | None:
    """Return the one key whose path ends as the name does, compared from the file up; None if none or several do.
    `keys`: by their last part."""
    parts = PurePosixPath(name).parts[::-1]
    shared = {key: _common_length(parts, PurePosixPath(key).parts[::-1]) for key in keys.get(parts[0], ())}
    best = [key for key, length in shared.items() if length == max(shared.values())]
    return best[0] if len(best) == 1 else None


def _by_folder_in_name(name: str, keys: Mapping[str, Sequence[str]]) -> str | None:
    """Return the one key whose file is named by folders, too: `bathroom_rgb_00045`, as bts saves, or with `__`, as
    AdaBins."""
    *folders, stem = PurePosixPath(name).parts
    tails = [(*folders[i:], stem) for i in range(len(folders))]
    spelled = {sign.join(words) for sign in ("_", "__") for words in (*tails, *((folder, stem) for folder in folders))}
    hits = [key for word in spelled for key in keys.get(word, ())]
    return hits[0] if len(hits) == 1 else None


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
