"""The classes of a model and their colours as a picture."""

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.card import Palette

ROW, SWATCH, GAP, LONGEST = 22, 16, 8, 40  # pixels of a line and of its square; lines of a column
FONT, SIZE, INK = cv2.FONT_HERSHEY_SIMPLEX, 0.45, (28, 36, 48)


def legend(names: Sequence[str], palette: Palette) -> UInt8[np.ndarray, "h w 3"]:
    """A square and a name a line, in columns of equal length, on white."""
    lines = [f"{i} {plain(name)}" for i, name in enumerate(names)]
    columns = -(-len(lines) // LONGEST)
    length = -(-len(lines) // columns)
    widths = [column_width(lines[i * length : (i + 1) * length]) for i in range(columns)]
    canvas = np.full((length * ROW + GAP, sum(widths) + GAP, 3), 255, np.uint8)
    for i, (line, colour) in enumerate(zip(lines, palette, strict=True)):
        x, y = GAP + sum(widths[: i // length]), GAP + i % length * ROW
        cv2.rectangle(canvas, (x, y), (x + SWATCH, y + SWATCH - 2), colour, cv2.FILLED)
        cv2.putText(canvas, line, (x + SWATCH + GAP, y + SWATCH - 4), FONT, SIZE, INK, 1, cv2.LINE_AA)
    return canvas


def column_width(lines: Sequence[str]) -> int:
    widest = max(cv2.getTextSize(line, FONT, SIZE, 1)[0][0] for line in lines)
    return int(widest) + SWATCH + 3 * GAP


def plain(name: str) -> str:
    """OpenCV's font knows ASCII only."""
    return name.encode("ascii", "replace").decode()
