"""Files of surface normals: PNG of 8 or 16 bits, NPY, EXR. h x w pixels, unit vectors in camera axes.

densevit's axes are OpenCV's: right, down, forward. Normals point towards the camera: a wall that it looks at squarely
has (0, 0, -1).
"""

import tempfile
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float, Float32

from densevit.data.io.arrays import read_array, read_exr_channels
from densevit.data.io.images import MAX_PIXELS, Raster, file_format
from densevit.data.io.writers import encode
from densevit.errors import DataError

Normals = Float32[np.ndarray, "h w 3"]

Axes = Literal["opencv", "opengl", "dsine"]
"""opencv: right, down, forward, towards the camera (densevit, MoGe, Metric3D). opengl: right, up, back (Marigold,
Hypersim). dsine: left, up, back (DSINE, StableNormal)."""

SIGNS: dict[Axes, tuple[int, int, int]] = {"opencv": (1, 1, 1), "opengl": (1, -1, -1), "dsine": (-1, -1, -1)}
"""What the components of these axes are multiplied by for OpenCV's, and back."""

MOST_AWAY = 0.9  # share of normals that point away from the camera over which the axes are others


def change_axes(normals: Normals, axes: Axes) -> Normals:
    """Return the normals in these axes as OpenCV's, or the other way round."""
    return normals * np.array(SIGNS[axes], np.float32)


def encode_normals(normals: Normals, bits: Literal[8, 16] = 16) -> bytes:
    """Return RGB PNG: each component from -1..1 to 0..2^bits - 1, to the nearest; (0, 0, 0) where the normal is
    unknown.

    16 bits keep the direction within 0.002 degrees, 8 bits within 0.4.
    """
    most = 2**bits - 1
    stored = np.rint((normals.clip(-1, 1).astype(np.float64) + 1) / 2 * most)
    valid = np.any(normals != 0, axis=2, keepdims=True)
    return encode(".png", np.where(valid, stored, 0).astype(np.uint8 if bits == 8 else np.uint16))


def encode_exr(normals: Normals) -> bytes:
    """Return OpenEXR of float32 channels R, G, B, which hold x, y, z. Raises ImportError if OpenEXR is not
    installed."""
    import OpenEXR

    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    channels = {name: np.ascontiguousarray(normals[..., i]) for i, name in enumerate("RGB")}
    with tempfile.TemporaryDirectory() as folder:  # OpenEXR writes to paths only
        path = Path(folder) / "normals.exr"
        OpenEXR.File(header, channels).write(str(path))
        return path.read_bytes()


def read_normals(path: Path, axes: Axes = "opencv", *, max_pixels: int = MAX_PIXELS) -> Normals:
    """Read normals as unit vectors in OpenCV's axes; 0 where the file has none.

    A PNG pixel of (0, 0, 0) has none; in float files, which hold the components themselves, neither has a vector
    shorter than 0.5 or not finite (as in DSINE's reading of iBims). Raises DataError naming the file, when it is
    missing, damaged, not three channels, or in other axes.
    """
    kind = file_format(path)
    if kind == "EXR":
        vectors = _exr(path, max_pixels)
    elif kind == "NPY":
        floats = _three_channels(path, read_array(path, kind, 3 * max_pixels))
        if floats.dtype.kind != "f":
            raise DataError(f"{path}: holds {floats.dtype}; normals in NPY are floats, the components themselves.")
        vectors = floats.astype(np.float32)
    else:
        raster = Raster.open(path, max_pixels)
        if raster.format != "PNG":
            raise DataError(f"{path}: {raster.format}; normals are RGB PNG of 8 or 16 bits, NPY or EXR.")
        stored = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_UNCHANGED)
        if stored is None:
            raise DataError(f"{path}: the PNG is damaged.")
        rgb = _three_channels(path, stored)[..., ::-1]
        vectors = rgb.astype(np.float32) / np.float32(np.iinfo(rgb.dtype).max / 2) - 1
        vectors[~rgb.any(axis=2)] = 0
    normals = change_axes(unit(vectors, shortest=0.5), axes)
    if np.count_nonzero(normals[..., 2] > 0) > MOST_AWAY * np.count_nonzero(normals[..., 2]):
        raise DataError(
            f"{path}: its normals point away from the camera if its axes are {axes}; choose others of "
            f"{', '.join(SIGNS)} (data.normal_axes, of predictions --axes)."
        )
    return normals


def unit(vectors: Float[np.ndarray, "h w 3"], shortest: float = 1e-6) -> Normals:
    """Return the vectors of length 1; 0 where they are shorter than `shortest`, or not finite."""
    length = np.linalg.norm(vectors, axis=2, keepdims=True)
    valid = np.isfinite(length) & (length >= shortest)
    return np.where(valid, vectors / np.where(valid, length, 1), 0).astype(np.float32)


def _three_channels(path: Path, array: np.ndarray) -> np.ndarray:
    if array.ndim == 3 and array.shape[0] == 3 != array.shape[2]:
        array = array.transpose(1, 2, 0)  # as networks give it
    if array.ndim != 3 or array.shape[2] != 3:
        raise DataError(f"{path}: an array of shape {array.shape}; normals are height x width x 3.")
    return array


def _exr(path: Path, max_pixels: int) -> np.ndarray:
    names = ("R", "G", "B"), ("X", "Y", "Z")
    channels = read_exr_channels(path, max_pixels)
    order = next((group for group in names if all(name in channels for name in group)), None)
    if order is None:
        raise DataError(f"{path}: channels {', '.join(channels)}; normals are R, G, B or X, Y, Z.")
    return np.stack([channels[name] for name in order], axis=2)
