"""Decoded depth maps on disk, for scoring against the same ground truth again: inflating PNG is most of that work."""

import hashlib
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from densevit.data.io.arrays import read_array
from densevit.data.io.images import MAX_PIXELS
from densevit.data.io.readers import read_depth
from densevit.errors import DataError
from densevit.utils.atomic_io import atomic_write, make_folder


class DepthCache:
    """Reads depth maps as `read_depth` does, and keeps each as a float32 NPY file in `folder`.

    A file counts as changed when its path, its size, its modification time or the scale does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, path: Path, scale: float | None = None) -> Float32[np.ndarray, "h w"]:
        """Depth in metres, from the cache where it holds this file. Raises DataError if the file is bad. Raises
        StorageError if the folder cannot be written."""
        cached = self._cached_path(path, scale)
        depth = _load(cached)
        if depth is None:
            depth = read_depth(path, scale)
            make_folder(self.folder)
            atomic_write(cached, lambda file: np.save(file, depth, allow_pickle=False))
        return depth

    def _cached_path(self, path: Path, scale: float | None) -> Path:
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}).") from error
        key = f"{path.absolute()}\n{status.st_size}\n{status.st_mtime_ns}\n{scale}"
        return self.folder / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"


def _load(path: Path) -> Float32[np.ndarray, "h w"] | None:
    """The array; None where it is missing or damaged."""
    try:
        array = read_array(path, "NPY", MAX_PIXELS)
    except DataError:
        return None
    return array if array.dtype == np.float32 and array.ndim == 2 else None
