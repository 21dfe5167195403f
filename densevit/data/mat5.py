"""MATLAB files of version 5 to 7, which are no HDF5; densevit.data.matfile has the later ones."""

from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from densevit.errors import DataError


def load(path: Path, key: str) -> Shaped[np.ndarray, "..."]:
    """An array of such a file.

    Raises:
        DataError: it is missing, damaged, or lacks the array.
    """
    import scipy.io

    try:
        tree = scipy.io.loadmat(path, variable_names=[key])
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except Exception as error:  # a parser over damaged bytes raises anything; the reason travels in the message
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{path}: no readable MATLAB file ({reason}).") from error
    if key not in tree:
        raise DataError(f"{path}: no '{key}' in it.")
    return np.asarray(tree[key])
