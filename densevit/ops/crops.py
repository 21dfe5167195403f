"""Windows of images, and those that published work agreed on."""

from typing import TypeVar

import numpy as np

from densevit.errors import DataError
from densevit.structures import Box, Size

Pixels = TypeVar("Pixels", bound=np.ndarray)

KB: Size = (352, 1216)
"""The size of KITTI's depth benchmark, to which most programs crop every frame before the network sees it."""

NYU_SIZE: Size = (480, 640)

NYU_PROJECTED: Box = (7, 474, 7, 632)
"""Outside it no depth was projected into NYU's colour images, and the published test images are black (bts)."""

NYU_WITHOUT_BORDER: Box = (45, 472, 43, 608)
"""NYU's images are undistorted, which leaves a white border outside this window (bts)."""


def crop(pixels: Pixels, box: Box) -> Pixels:
    """Return the window of an image or map, contiguous."""
    y0, y1, x0, x1 = box
    return np.ascontiguousarray(pixels[y0:y1, x0:x1])  # type: ignore[return-value]


def kb_box(size: Size) -> Box:
    """Return KITTI's benchmark window ("KB crop") in an image: the bottom 352 rows, the middle 1216 columns. Raises
    DataError: the image is smaller."""
    h, w = size
    if h < KB[0] or w < KB[1]:
        raise DataError(f"{h}x{w} is too small for KITTI's {KB[0]}x{KB[1]} benchmark window; leave the KB crop out.")
    top, left = h - KB[0], (w - KB[1]) // 2
    return top, h, left, left + KB[1]
