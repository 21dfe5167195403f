"""Text in images, in any script that the font of OpenCV 5 has."""

import threading
from functools import cache

import cv2
import numpy as np
from jaxtyping import UInt8

Color = tuple[int, int, int]

LOCK = threading.Lock()  # threads that draw with one font at a time get each other's glyphs
NORMAL = 400  # of the font's weights


@cache
def font() -> cv2.FontFace:
    return cv2.FontFace("sans")


def text_width(text: str, size: int) -> int:
    """Return the width of a line of text in pixels. `size`: of its letters in pixels."""
    with LOCK:
        left, _, width, _ = cv2.getTextSize((0, 0), text, (0, 0), font(), size, NORMAL)
    return int(left + width)


def draw_text(image: UInt8[np.ndarray, "h w 3"], text: str, at: tuple[int, int], size: int, color: Color) -> None:
    """Draw a line of text into an image, in place. `at`: column and row of the left end of its base line; `size`: of
    its letters in pixels."""
    with LOCK:
        cv2.putText(image, text, at, color, font(), size, NORMAL)
