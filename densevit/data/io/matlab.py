"""MATLAB files: version 5 to 7 by scipy (`load`), version 7.3, which is HDF5, by h5py (`open_mat`, `create`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Int64, Shaped

from densevit.errors import DataError, first_line
from densevit.utils.atomic_io import atomic_path


def load(path: Path, key: str) -> Shaped[np.ndarray, "..."]:
    """Return an array of a file of version 5 to 7. Raises DataError if it is missing, damaged, or lacks the array."""
    import scipy.io

    with _parser_errors(path):
        tree = scipy.io.loadmat(path, variable_names=[key])
    if key not in tree:
        raise DataError(f"{path}: no '{key}' in it.")
    return np.asarray(tree[key])


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in a file of version 5 to 7. Raises DataError if it is missing or damaged."""
    import scipy.io

    with _parser_errors(path), open(path, "rb") as file:
        return [name for name, _, _ in scipy.io.whosmat(file)]


def cell_texts(path: Path, cells: Shaped[np.ndarray, "..."]) -> list[str]:
    """Return a cell array of texts. Raises DataError if it is none."""
    try:
        return [str(cell.ravel()[0]).strip() for cell in cells.ravel()]
    except (AttributeError, IndexError) as error:
        raise DataError(f"{path}: expected a cell array of texts ({error}).") from error


def class_ids(path: Path, array: Shaped[np.ndarray, "..."]) -> Int64[np.ndarray, "h w"]:
    """Return the class ids out of an array of such a file; MATLAB's usual type of number is a double. Raises DataError
    if it is none of h x w integers."""
    whole = array.dtype.kind in "iub" or (array.dtype.kind == "f" and bool((array == np.rint(array)).all()))
    if array.ndim != 2 or not whole or not array.size:
        raise DataError(f"{path}: {array.dtype} of shape {array.shape}; expected h x w integers.")
    return array.astype(np.int64)


@contextmanager
def _parser_errors(path: Path) -> Iterator[None]:
    """Turn errors of the parser into DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except Exception as error:  # a parser over damaged bytes raises anything; the reason travels in the message
        raise DataError(f"{path}: no readable MATLAB file ({first_line(error)[:200]}).") from error


HEADER = b"MATLAB 7.3 MAT-file, written by densevit".ljust(116) + b"\0" * 8 + b"\x00\x02IM"


@contextmanager
def create(path: Path) -> Iterator[h5py.File]:
    """Create a file of version 7.3; it gets its name when it is complete."""
    with atomic_path(path) as temporary:
        with h5py.File(temporary, "w", userblock_size=512) as file:
            yield file
        with open(temporary, "r+b") as raw:
            raw.write(HEADER)


def open_mat(path: Path) -> h5py.File:
    """Open a file of version 7.3. Raises DataError if it is missing, truncated, or of the older MATLAB format."""
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: no readable HDF5 (MATLAB 7.3) file ({error}).") from error


def dataset(file: h5py.File, key: str) -> h5py.Dataset:
    """Return an array that must be in the file itself. Raises DataError if it is not."""
    local = isinstance(file.get(key, getlink=True), h5py.HardLink)
    array = file[key] if local else None
    if not isinstance(array, h5py.Dataset) or array.external or array.is_virtual:
        raise DataError(f"{file.filename}: no data set '{key}' in it; it holds {', '.join(file) or 'nothing'}.")
    return array


def read_texts(file: h5py.File, key: str) -> list[str]:
    """Return a cell array of texts."""
    try:
        return ["".join(map(chr, np.ravel(file[ref]))) for ref in np.ravel(dataset(file, key)[()])]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{file.filename}: '{key}' holds no texts ({error}).") from error


def write_texts(file: h5py.File, key: str, texts: Sequence[str]) -> None:
    """Write a cell array of texts as MATLAB does."""
    store = file.require_group("#refs#")
    cells = file.create_dataset(key, (1, len(texts)), h5py.ref_dtype)
    cells.attrs["MATLAB_class"] = np.bytes_("cell")
    for i, text in enumerate(texts):
        codes = np.frombuffer(text.encode("utf-16-le"), np.uint16)[:, None]
        text_set = store.create_dataset(f"{key}{i}", data=codes)
        text_set.attrs["MATLAB_class"] = np.bytes_("char")
        cells[0, i] = text_set.ref
