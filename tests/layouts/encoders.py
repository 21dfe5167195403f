"""Depth and label maps as the bytes of every format that `folder` reads."""

import struct
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int64

from densevit.data.io.writers import encode, encode_depth, encode_labels, encode_npz, encode_palette, encode_pfm
from densevit.model_card import Palette

LabelFormat = Literal["ids", "palette", "colours"]
DepthFormat = Literal[".png", ".npy", ".npz", ".tiff", ".pfm", ".h5"]


def encode_colours(ids: Int64[np.ndarray, "h w"], palette: Palette) -> bytes:
    """RGB PNG of the classes' colours; black where a class has none, as 255 has."""
    colours = np.zeros((max(int(ids.max()) + 1, len(palette)), 3), np.uint8)
    colours[: len(palette)] = palette
    return encode(".png", colours[ids])


def npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def mat(**arrays: Any) -> bytes:
    """A MATLAB file of version 5."""
    import scipy.io

    file = BytesIO()
    scipy.io.savemat(file, arrays, do_compression=True)
    return file.getvalue()


def _h5(metres: Float32[np.ndarray, "h w"]) -> bytes:
    import h5py

    file = BytesIO()
    with h5py.File(file, "w") as handle:
        handle.create_dataset(
            "depth", data=metres, chunks=metres.shape, compression="lzf", shuffle=True, fletcher32=True
        )
    return file.getvalue()


DEPTH_WRITERS: Mapping[DepthFormat, Callable[[Float32[np.ndarray, "h w"], float], bytes]] = {
    ".png": encode_depth,
    ".npy": lambda metres, scale: npy(metres),
    ".npz": lambda metres, scale: encode_npz(depth=metres),
    ".tiff": lambda metres, scale: encode(".tiff", metres),
    ".pfm": lambda metres, scale: encode_pfm(metres),
    ".h5": lambda metres, scale: _h5(metres),
}

LABEL_WRITERS: Mapping[LabelFormat, Callable[[Int64[np.ndarray, "h w"], Palette], bytes]] = {
    "ids": lambda ids, palette: encode_labels(ids),
    "palette": lambda ids, palette: encode_palette(ids.astype(np.uint8), palette),
    "colours": encode_colours,
}


def png(header: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A PNG written by hand, of chunks of these kinds and bodies."""
    chunks = [(b"IHDR", header), *more, (b"IEND", b"")]
    packed = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
