"""Decoded depth maps on disk, for who scores against the same truth again: inflating PNG is most of that work."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from densevit.data.io.arrays import read_array
from densevit.data.io.images import MAX_PIXELS
from densevit.errors import DataError
from densevit.utils.atomic_io import atomic_write, make_folder

FOLDER: ContextVar[Path | None] = ContextVar("decoded", default=None)


@contextmanager
def depth_cache(folder: Path | None) -> Iterator[None]:
    """Within it, in this thread, depth maps that have been decoded once are taken from `folder`; None decodes."""
    token = FOLDER.set(folder)
    try:
        yield
    finally:
        FOLDER.reset(token)


class Decoded:
    """The place of one decoded map: float32 NPY, under a name that changes with the file and with what is asked of it.

    A file counts as changed when its path, its size or its time of change does.
    """

    def __init__(self, folder: Path, source: Path, scale: float | None, max_pixels: int) -> None:
        about = source.stat()
        told = f"{source.absolute()}\n{about.st_size}\n{about.st_mtime_ns}\n{scale}\n{max_pixels}"
        self.path = folder / f"{hashlib.sha256(told.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"

    def read(self) -> Float32[np.ndarray, "h w"] | None:
        """The map, if it has been kept."""
        try:
            found = read_array(self.path, "NPY", MAX_PIXELS)
        except DataError:  # not there, or no longer what was written
            return None
        return found if found.dtype == np.float32 and found.ndim == 2 else None

    def keep(self, metres: Float32[np.ndarray, "h w"]) -> None:
        """
        Raises:
            StorageError: the folder cannot be written.
        """
        make_folder(self.path.parent)
        atomic_write(self.path, lambda file: np.save(file, metres, allow_pickle=False))
