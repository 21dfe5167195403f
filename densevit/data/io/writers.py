"""Arrays as the bytes of image, depth, label and flow files; what densevit.data.io.readers reads back.

Optical flow is a 16-bit PNG, as KITTI stores it: red and green are 64 flow + 32768, x and y, blue is 1 where known.
"""

from io import BytesIO

import cv2
import numpy as np
from jaxtyping import Float32, Int64, Shaped, UInt8, UInt16
from PIL import Image

from densevit.model_card import Palette


def encode(suffix: str, pixels: Shaped[np.ndarray, "..."]) -> bytes:
    """Return RGB or one channel as the bytes of an image file; JPEG of quality 95."""
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.ndim == 3 else pixels
    options = [cv2.IMWRITE_JPEG_QUALITY, 95] if suffix == ".jpg" else []
    return cv2.imencode(suffix, bgr, options)[1].tobytes()


def encode_palette(ids: UInt8[np.ndarray, "h w"], palette: Palette) -> bytes:
    """Return a PNG of indices into a palette; those beyond it are black."""
    colours = bytes(value for colour in palette for value in colour)
    image = Image.fromarray(ids)
    # With 16 colours or fewer Pillow would store 4 bits a pixel, and make 15 of an index of 255.
    image.putpalette(colours.ljust(3 * 256, b"\0"))
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def encode_labels(ids: Int64[np.ndarray, "h w"]) -> bytes:
    """Return the gray PNG of class ids, of 16 bits where 8 do not hold them."""
    return encode(".png", ids.astype(np.uint8 if ids.max() < 256 else np.uint16))


def encode_depth(metres: Float32[np.ndarray, "h w"], scale: float) -> bytes:
    """Return 16-bit PNG of `scale` units per metre; what 16 bits do not hold is 0, not valid."""
    return encode(".png", to_uint16(metres, scale))


def to_uint16(values: Float32[np.ndarray, "h w"], scale: float, offset: float = 0.0) -> UInt16[np.ndarray, "h w"]:
    """Return (value - offset) * scale, to the nearest; 0 where it is not within 1 to 65535."""
    stored = np.rint((values.astype(np.float64) - offset) * scale)
    return np.where((stored > 0) & (stored < 65536), stored, 0).astype(np.uint16)


def encode_npz(**arrays: np.typing.ArrayLike) -> bytes:
    """Return the compressed NumPy archive."""
    file = BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def encode_pfm(metres: Float32[np.ndarray, "h w"]) -> bytes:
    """Return the portable float map: float32, little-endian (scale -1), rows from the bottom up (Debevec's format)."""
    height, width = metres.shape
    return f"Pf\n{width} {height}\n-1.0\n".encode() + metres[::-1].astype("<f4").tobytes()


STEPS = 64.0  # a pixel
ZERO = 1 << 15


def encode_flow(flow: Float32[np.ndarray, "h w 2"]) -> bytes:
    """Round to 1/64 pixel; NaN, and what is not within 512 pixels, becomes unknown."""
    with np.errstate(invalid="ignore"):
        stored = np.rint(flow.astype(np.float64) * STEPS + ZERO)
        valid = ((stored >= 0) & (stored <= 65535)).all(-1)
    x, y = (np.where(valid, stored[..., i], 0).astype(np.uint16) for i in (0, 1))
    return cv2.imencode(".png", np.dstack([valid.astype(np.uint16), y, x]))[1].tobytes()  # OpenCV has blue first
