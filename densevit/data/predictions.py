"""Depth maps that some system saved, found again for the images of a data set."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Float32

from densevit.data.io import read_depth
from densevit.data.matching import DEPTH_SUFFIXES, partners, walk
from densevit.data.paths import first_five
from densevit.errors import DataError


class SavedMaps:
    """One saved map per image of a data set, matched by name.

    A map belongs to the image of the same path up to the suffix; where that leaves some alone, words such as `rgb`
    or `depth` in the names do not count; where that does, too, the ends of the paths decide, as long as there is
    one answer: `out/kitchen/0001.png` is found for `kitchen/0001`, and `0001.png` if there is only one such.

    Args:
        names: those of the data set.
        scale: stored units per metre of integer files that do not carry theirs.
        suffix: `.png` say, where the folder holds each map in several formats.

    Raises:
        DataError: maps are missing or ambiguous; with the count and the first five.
    """

    def __init__(self, folder: Path, names: Sequence[str], *, scale: float | None = None, suffix: str | None = None):
        self.scale = scale
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder of predictions.")
        suffixes = frozenset([suffix.lower()]) if suffix else DEPTH_SUFFIXES
        found: dict[str, list[Path]] = defaultdict(list)
        for path in walk(folder, folder, allow_outside=True):
            if path.suffix.lower() in suffixes:
                found[path.relative_to(folder).with_suffix("").as_posix()].append(path)
        if not found:
            raise DataError(f"{folder}: holds no depth maps ({', '.join(sorted(suffixes))}).")
        matched = partners(list(names), list(found))
        for name in names:
            if name not in matched and (keys := _by_ending(name, list(found))):
                matched[name] = keys
        missing = [name for name in names if name not in matched]
        if missing:
            raise DataError(f"{folder}: no map for {len(missing):,} of {len(names):,} images:{first_five(missing)}")
        several = [
            f"{name}: {', '.join(p.name for p in found[matched[name]])}"
            for name in names
            if len(found[matched[name]]) > 1
        ]
        if several:
            raise DataError(
                f"{folder}: {len(several):,} maps come in several formats, choose by suffix:{first_five(several)}"
            )
        self.paths = {name: found[matched[name]][0] for name in names}

    def read(self, name: str) -> Float32[np.ndarray, "h w"]:
        """The map, 0 where it has no value."""
        return read_depth(self.paths[name], self.scale)


def _by_ending(name: str, keys: list[str]) -> str | None:
    """The one key whose path ends as the name does, compared from the file up; None if none or several do."""
    parts = PurePosixPath(name).parts[::-1]
    shared = {key: _common(parts, PurePosixPath(key).parts[::-1]) for key in keys}
    longest = max(shared.values())
    best = [key for key, length in shared.items() if length == longest]
    return best[0] if longest > 0 and len(best) == 1 else None


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
