"""Data sets of picture files with map files beside them: what their readers share.

A reader finds its `Frame`s, hands them to `Frames`, which checks that every file is there, and says in `read` what the
stored numbers mean.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Shaped, UInt8

from densevit.data.datasets.base import Dataset
from densevit.data.index.paths import Subset, keep_present
from densevit.errors import DataError
from densevit.structures import Sample


@dataclass(frozen=True, eq=False)
class Frame:
    """The files of one sample."""

    name: str
    image: Path
    depth: Path
    masks: tuple[Path, ...] = ()  # depth counts where all of them say so
    camera: Path | None = None  # a file of intrinsics; where it is not there, None

    def files(self) -> list[Path]:
        return [self.image, self.depth, *self.masks]


class Frames(Dataset):
    """Frames whose files are all there."""

    def __init__(self, frames: Sequence[Frame], subset: Subset, what: str) -> None:
        """Checks the files.

        Args:
            what: data set and split, for messages.

        Raises:
            DataError: some are missing and `subset` is full, or all are; with the count and the first five.
        """
        self.frames = keep_present(frames, Frame.files, subset, what)
        self.names = [frame.name for frame in self.frames]

    def files(self, index: int) -> Mapping[str, Path]:
        frame = self.frames[index]
        masks = {f"mask {i}": path for i, path in enumerate(frame.masks, 1)}
        return {"image": frame.image, "depth": frame.depth, **masks}

    def scene(self, index: int) -> str:
        return self.names[index].rpartition("/")[0]


def assemble(
    frame: Frame,
    image: UInt8[np.ndarray, "h w 3"],
    depth: Shaped[np.ndarray, "rows columns"],
    *,
    valid: Bool[np.ndarray, "rows columns"] | None = None,
    intrinsics: Float64[np.ndarray, "3 3"] | None = None,
) -> Sample:
    """A sample of metres, valid where they are positive and finite and `valid` says so.

    Raises:
        DataError: naming both files, where their sizes differ.
    """
    if depth.shape != image.shape[:2]:
        (h, w), (rows, columns) = image.shape[:2], depth.shape
        raise DataError(f"sizes differ: {frame.image} is {h} x {w} (h x w), {frame.depth} is {rows} x {columns}.")
    with np.errstate(over="ignore"):
        metres = depth.astype(np.float32)
    known = np.isfinite(metres) & (metres > 0)
    if valid is not None:
        known &= valid
    metres = np.where(known, metres, np.float32(0))
    return Sample(name=frame.name, image=image, depth=metres, valid=known, intrinsics=intrinsics)


def search(root: Path, patterns: Iterable[str], expected: str) -> list[Path]:
    """The files of the first pattern that finds any, sorted; `**` goes through folders.

    Raises:
        DataError: none does.
    """
    patterns = list(patterns)
    for pattern in patterns:
        if found := seen(root, pattern):
            return found
    raise DataError(f"{root}: no {' or '.join(patterns)}; {expected}")


def seen(folder: Path, pattern: str) -> list[Path]:
    """Files of a pattern, sorted; not the hidden ones, such as `._0001.jpg`, which a Mac writes beside each file."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def stem(path: Path, root: Path) -> str:
    """A sample's name: its path under `root` without suffix."""
    return path.relative_to(root).with_suffix("").as_posix()


def first_folder(root: Path, homes: Iterable[str], holding: str) -> Path:
    """The first of some places under `root` that has the folder or file `holding`; the root where none has."""
    return next((root / home for home in homes if (root / home / holding).exists()), root)


def numbers(path: Path, count: int) -> list[float]:
    """The first `count` numbers of a text file, whatever separates them.

    Raises:
        DataError: it is not there, or holds fewer.
    """
    try:
        words = path.read_text().replace(",", " ").split()
        values = [float(word) for word in words[:count]]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no readable numbers ({error}).") from error
    if len(values) < count or not np.isfinite(values).all():
        raise DataError(f"{path}: expected {count} numbers, got {len(values)}.")
    return values
