"""MATLAB 7.3 files: HDF5 behind a 512-byte header, arrays with their axes reversed, texts as references.

A MATLAB array of H x W x 3 x N stands here as N x 3 x W x H. A cell array of texts is a row of references to arrays of
UTF-16 codes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from densevit.errors import DataError
from densevit.files import atomic_path

HEADER = b"MATLAB 7.3 MAT-file, written by densevit".ljust(116) + b"\0" * 8 + b"\x00\x02IM"


@contextmanager
def create(path: Path) -> Iterator[h5py.File]:
    """A new file, under its name when complete."""
    with atomic_path(path) as temporary:
        with h5py.File(temporary, "w", userblock_size=512) as file:
            yield file
        with open(temporary, "r+b") as raw:
            raw.write(HEADER)


def open_mat(path: Path) -> h5py.File:
    """Opens for reading.

    Raises:
        DataError: it is missing, truncated, or of the older MATLAB format.
    """
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: no readable HDF5 (MATLAB 7.3) file ({error}).") from error


def dataset(file: h5py.File, key: str) -> h5py.Dataset:
    """An array that must be in the file itself.

    Raises:
        DataError: it is not.
    """
    local = isinstance(file.get(key, getlink=True), h5py.HardLink)
    found = file[key] if local else None
    if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
        raise DataError(f"{file.filename}: no data set '{key}' in it; it holds {', '.join(file) or 'nothing'}.")
    return found


def read_texts(file: h5py.File, key: str) -> list[str]:
    """A cell array of texts."""
    try:
        return ["".join(map(chr, np.ravel(file[ref]))) for ref in np.ravel(dataset(file, key)[()])]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{file.filename}: '{key}' holds no texts ({error}).") from error


def write_texts(file: h5py.File, key: str, texts: Sequence[str]) -> None:
    """The same, as MATLAB writes it."""
    store = file.require_group("#refs#")
    cells = file.create_dataset(key, (1, len(texts)), h5py.ref_dtype)
    cells.attrs["MATLAB_class"] = np.bytes_("cell")
    for i, text in enumerate(texts):
        codes = np.frombuffer(text.encode("utf-16-le"), np.uint16)[:, None]
        text_set = store.create_dataset(f"{key}{i}", data=codes)
        text_set.attrs["MATLAB_class"] = np.bytes_("char")
        cells[0, i] = text_set.ref
