"""MATLAB files of version 5 to 7, which are no HDF5; densevit.data.matfile has the later ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped

from densevit.errors import DataError


def load(path: Path, key: str) -> Shaped[np.ndarray, "..."]:
    """An array of such a file.

    Raises:
        DataError: it is missing, damaged, or lacks the array.
    """
    import scipy.io

    with _told(path):
        tree = scipy.io.loadmat(path, variable_names=[key])
    if key not in tree:
        raise DataError(f"{path}: no '{key}' in it.")
    return np.asarray(tree[key])


def keys(path: Path) -> list[str]:
    """The names of its arrays.

    Raises:
        DataError: it is missing or damaged.
    """
    import scipy.io

    with _told(path), open(path, "rb") as file:
        return [name for name, _, _ in scipy.io.whosmat(file)]


def texts(path: Path, cells: Shaped[np.ndarray, "..."]) -> list[str]:
    """A cell array of texts.

    Raises:
        DataError: it is none.
    """
    try:
        return [str(cell.ravel()[0]).strip() for cell in cells.ravel()]
    except (AttributeError, IndexError) as error:
        raise DataError(f"{path}: expected a cell array of texts ({error}).") from error


def labels(path: Path, array: Shaped[np.ndarray, "..."]) -> Int64[np.ndarray, "h w"]:
    """Class ids out of an array of such a file; MATLAB's usual type of number is a double.

    Raises:
        DataError: it is none of h x w integers.
    """
    whole = array.dtype.kind in "iub" or (array.dtype.kind == "f" and bool((array == np.rint(array)).all()))
    if array.ndim != 2 or not whole or not array.size:
        raise DataError(f"{path}: {array.dtype} of shape {array.shape}; expected h x w integers.")
    return array.astype(np.int64)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Faults of the parser as ours."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except Exception as error:  # a parser over damaged bytes raises anything; the reason travels in the message
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{path}: no readable MATLAB file ({reason}).") from error
