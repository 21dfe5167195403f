"""Optical flow as 16-bit PNG, as KITTI stores it: red and green are 64 flow + 32768, x and y, blue is 1 where known."""

from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float32

from densevit.data.io.images import read_bytes
from densevit.errors import DataError

STEPS = 64.0  # a pixel
ZERO = 1 << 15


def encode_flow(flow: Float32[np.ndarray, "h w 2"]) -> bytes:
    """To 1/64 pixel; NaN, and what is not within 512 pixels, becomes unknown."""
    with np.errstate(invalid="ignore"):
        stored = np.rint(flow.astype(np.float64) * STEPS + ZERO)
        known = ((stored >= 0) & (stored <= 65535)).all(-1)
    x, y = (np.where(known, stored[..., i], 0).astype(np.uint16) for i in (0, 1))
    return cv2.imencode(".png", np.dstack([known.astype(np.uint16), y, x]))[1].tobytes()  # OpenCV has blue first


def read_flow(path: Path) -> Float32[np.ndarray, "h w 2"]:
    """Pixels along x and y; NaN where not known. Raises DataError if it is not there, or no such PNG."""
    pixels = cv2.imdecode(np.frombuffer(read_bytes(path), np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise DataError(f"{path}: is no optical flow; it is a 16-bit PNG of three channels.")
    flow = ((pixels[..., :0:-1].astype(np.float64) - ZERO) / STEPS).astype(np.float32)
    flow[pixels[..., 0] == 0] = np.nan
    return flow
