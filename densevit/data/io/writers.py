"""Arrays as the bytes of image, depth and label files; what densevit.data.io.readers reads back."""

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float32, Int64, Shaped, UInt8
from PIL import Image

from densevit.model_card import Palette

ImageFormat = Literal[".jpg", ".png"]
LabelFormat = Literal["ids", "palette", "colours"]
DepthFormat = Literal[".png", ".npy", ".npz", ".tiff", ".pfm", ".h5"]


def encode(suffix: str, pixels: Shaped[np.ndarray, "..."]) -> bytes:
    """RGB or one channel as the bytes of a picture file; JPEG of quality 95."""
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.ndim == 3 else pixels
    options = [cv2.IMWRITE_JPEG_QUALITY, 95] if suffix == ".jpg" else []
    return cv2.imencode(suffix, bgr, options)[1].tobytes()


def encode_palette(ids: UInt8[np.ndarray, "h w"], palette: Palette) -> bytes:
    """PNG of indices into a palette; those beyond it are black."""
    colours = bytes(value for colour in palette for value in colour)
    picture = Image.fromarray(ids)
    # With 16 colours or fewer Pillow would store 4 bits a pixel, and make 15 of an index of 255.
    picture.putpalette(colours.ljust(3 * 256, b"\0"))
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def encode_labels(ids: Int64[np.ndarray, "h w"]) -> bytes:
    """Gray PNG of class ids, of 16 bits where 8 do not hold them."""
    return encode(".png", ids.astype(np.uint8 if ids.max() < 256 else np.uint16))


def encode_colours(ids: Int64[np.ndarray, "h w"], palette: Palette) -> bytes:
    """RGB PNG of the classes' colours; black where a class has none, as 255 has."""
    colours = np.zeros((max(int(ids.max()) + 1, len(palette)), 3), np.uint8)
    colours[: len(palette)] = palette
    return encode(".png", colours[ids])


def encode_depth(metres: Float32[np.ndarray, "h w"], scale: float) -> bytes:
    """16-bit PNG of `scale` units per metre; what does not fit is 0, not valid."""
    stored = np.rint(np.nan_to_num(metres.astype(np.float64), posinf=0.0) * scale)
    return encode(".png", np.where((stored > 0) & (stored < 65536), stored, 0).astype(np.uint16))


def encode_pfm(metres: Float32[np.ndarray, "h w"]) -> bytes:
    height, width = metres.shape
    return f"Pf\n{width} {height}\n-1.0\n".encode() + metres[::-1].astype("<f4").tobytes()


def _npy(metres: Float32[np.ndarray, "h w"]) -> bytes:
    file = BytesIO()
    np.save(file, metres, allow_pickle=False)
    return file.getvalue()


def _npz(metres: Float32[np.ndarray, "h w"]) -> bytes:
    file = BytesIO()
    np.savez_compressed(file, depth=metres)
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
    ".npy": lambda metres, scale: _npy(metres),
    ".npz": lambda metres, scale: _npz(metres),
    ".tiff": lambda metres, scale: encode(".tiff", metres),
    ".pfm": lambda metres, scale: encode_pfm(metres),
    ".h5": lambda metres, scale: _h5(metres),
}

LABEL_WRITERS: Mapping[LabelFormat, Callable[[Int64[np.ndarray, "h w"], Palette], bytes]] = {
    "ids": lambda ids, palette: encode_labels(ids),
    "palette": lambda ids, palette: encode_palette(ids.astype(np.uint8), palette),
    "colours": encode_colours,
}
