"""Files that hold one array of numbers: NPY, NPZ, PFM, HDF5, EXR. No pickle, ever.

Every reader takes a path and the most elements it may hold, and returns the array as stored.
"""

import math
import zipfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Float, Shaped
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic

from densevit.errors import DataError, first_line

KEY = "depth"  # what the array is called in an NPZ or HDF5 file that holds several

# What renderers call depth: OpenEXR's own name, Blender's, and the only channel of a gray file.
EXR_CHANNELS = (KEY, "Z", "Depth.V", "Depth.Z", "View Layer.Depth.Z", "ViewLayer.Depth.Z", "V", "Y")

NPY_HEADERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}

Array = Shaped[np.ndarray, "..."]
P = ParamSpec("P")
Result = TypeVar("Result")


def retried(read: Callable[P, Result]) -> Callable[P, Result]:
    """Read once more after a SystemError: until Python 3.11.7 a thread that parses NumPy's header of a good file may
    raise one when another does (github.com/python/cpython/issues/106905)."""

    @wraps(read)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return read(*args, **kwargs)
        except SystemError:
            return read(*args, **kwargs)

    return call


def read_array(path: Path, kind: str, max_size: int) -> Array:
    """Read a file of one of the `READERS` formats. Raises DataError naming the file, when it is damaged, too large, or
    does not say which array is meant."""
    try:
        return retried(READERS[kind])(path, max_size)
    except DataError:
        raise
    except Exception as error:  # parsers over damaged bytes raise anything; the reason travels in the message
        raise DataError(f"{path}: the {kind} file is damaged ({first_line(error)[:200]}).") from error


def _npy(path: Path, max_size: int) -> Array:
    with open(path, "rb") as file:
        version = read_magic(file)
        if version not in NPY_HEADERS:
            raise DataError(f"{path}: an array of records; expected numbers.")
        shape, columns_first, dtype = NPY_HEADERS[version](file)
        if dtype.hasobject:
            raise DataError(f"{path}: an array of Python objects; expected numbers.")
        size = math.prod(shape)
        _check_size(path, size, max_size)
        values = np.fromfile(file, dtype, size)
    if values.size < size:
        raise DataError(f"{path}: the NPY is truncated ({values.size:,} of {size:,} values).")
    return values.reshape(shape, order="F" if columns_first else "C")


def _npz(path: Path, max_size: int) -> Array:
    with zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): archive.getinfo(name).file_size for name in archive.namelist()}
    key = _choose(path, list(members))
    _check_size(path, members[key] // 8, max_size)  # at most 8 bytes an element
    with np.load(path, allow_pickle=False) as arrays:
        return np.asarray(arrays[key])


def _pfm(path: Path, max_size: int) -> Float[np.ndarray, "h w"]:
    """Return the portable float map: rows bottom-up; a negative scale says little-endian (Debevec's description)."""
    with open(path, "rb") as file:
        kind, width, height, scale = (_token(file) for _ in range(4))
        if kind != b"Pf":
            raise DataError(f"{path}: a colour PFM (three channels); depth is one channel, 'Pf'.")
        w, h = int(width), int(height)
        _check_size(path, w * h, max_size)
        file.seek(-1, 1)
        file.seek(0 if file.read(2) == b"\r\n" else -1, 1)  # the header may have the line ends of Windows
        data = file.read(4 * w * h)
    if len(data) < 4 * w * h or w < 1 or h < 1:
        raise DataError(f"{path}: the PFM is truncated ({len(data):,} of {4 * w * h:,} bytes).")
    order = "<f4" if float(scale) < 0 else ">f4"
    return np.frombuffer(data, order).reshape(h, w)[::-1].astype(np.float32)


def _hdf5(path: Path, max_size: int) -> Array:
    import h5py

    with h5py.File(path, "r") as file:
        key = _choose(
            path, [name for name in file if name == KEY or isinstance(file.get(name, getlink=True), h5py.HardLink)]
        )
        link = file.get(key, getlink=True)
        dataset = None if isinstance(link, h5py.ExternalLink) else file[key]
        if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external or dataset.file != file:
            raise DataError(
                f"{path}: '{key}' is no data set of this file itself; links to other files are not followed."
            )
        _check_size(path, dataset.size, max_size)
        return np.asarray(dataset[()])


def hdf5_kind(path: Path) -> str:
    """Return the meaning of an array that was read, where `densevit predict` wrote it: metric, say; else empty."""
    import h5py

    with h5py.File(path, "r") as file:
        return str(file[KEY].attrs.get("kind", "")) if KEY in file else ""


def _exr(path: Path, max_size: int) -> Array:
    """Return the one channel of an OpenEXR file, or the one that holds depth; red where red, green and blue are the
    same."""
    channels = read_exr_channels(path, max_size)
    named = next((name for name in EXR_CHANNELS if name in channels), None)
    if named is not None:
        return np.asarray(channels[named])
    colours = [channels[name] for name in "RGB" if name in channels]
    if len(colours) == 3 and all(np.array_equal(colours[0], other, equal_nan=True) for other in colours[1:]):
        return np.asarray(colours[0])
    return np.asarray(channels[_choose(path, list(channels))])


def read_exr_channels(path: Path, max_size: int) -> dict[str, Array]:
    """Return the channels of an OpenEXR file by name, h x w each. Raises DataError if OpenEXR is not installed, or the
    file is larger than `max_size` pixels."""
    try:
        import OpenEXR
    except ImportError:
        raise DataError(f"{path}: EXR needs `pip install 'densevit[exr]'`, or convert it to PFM or NPY.") from None
    with OpenEXR.File(str(path), separate_channels=True, header_only=True) as header:
        corner, opposite = (np.asarray(point) for point in header.header()["dataWindow"])
        _check_size(path, int(np.prod(opposite - corner + 1)), max_size)
    with OpenEXR.File(str(path), separate_channels=True) as file:
        return {name: np.asarray(channel.pixels) for name, channel in file.channels().items()}


READERS: dict[str, Callable[[Path, int], Array]] = {
    "NPY": _npy,
    "ZIP": _npz,
    "PFM": _pfm,
    "HDF5": _hdf5,
    "EXR": _exr,
}


def _choose(path: Path, keys: list[str]) -> str:
    if KEY in keys:
        return KEY
    if len(keys) == 1:
        return keys[0]
    raise DataError(f"{path}: holds {', '.join(keys[:8]) or 'nothing'}; expected one array, or one called '{KEY}'.")


def _check_size(path: Path, size: int, max_size: int) -> None:
    if size > max_size:
        raise DataError(f"{path}: {size:,} values; the limit is {max_size:,} (max_pixels).")


def _token(file: BinaryIO) -> bytes:
    """Return the next word of a PFM header that is in no comment, and read the one blank that ends it."""
    word = b""
    while len(word) < 32:
        byte = file.read(1)
        if byte == b"#" and not word:
            byte = file.readline()[-1:]
        if not byte or (byte.isspace() and word):
            break
        word += byte.strip()
    return word
