"""A confusion matrix as an image: true classes down, predicted ones across, each row 100%. k classes."""

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Float, Int64, UInt8

from densevit.evaluation.segmentation.metrics import share

Image = UInt8[np.ndarray, "h w 3"]

MATRIX_SIDE = 760  # pixels that the cells share
MAX_CELL, MIN_CELL = 40, 4  # pixels of a cell
CELL_FOR_NAMES = 12  # pixels of a cell from which on a name fits beside it
CELL_FOR_NUMBERS = 28  # pixels of a cell from which on its percentage fits into it
GAP = 5  # pixels before and behind a name
EMPTY = (238, 240, 243)  # of a class that does not occur
NONE, ALL = np.array([255.0, 255, 255]), np.array([12.0, 52, 120])  # 0% and 100%
FONT, SIZE, INK, PAPER = cv2.FONT_HERSHEY_SIMPLEX, 0.38, (28, 36, 48), (255, 255, 255)


def row_shares(
    confusion: Int64[np.ndarray, "k m"], names: Sequence[str]
) -> tuple[Float[np.ndarray, "k n"], list[str], list[str]]:
    """Each row as shares of its sum, NaN for a class that does not occur; names of the rows and of the columns.

    The last of m = k + 1 columns, pixels predicted as no class, is left out where it is empty.
    """
    columns = [*names, "none"]
    if not confusion[:, -1].any():
        confusion, columns = confusion[:, :-1], columns[:-1]
    return share(confusion, np.broadcast_to(confusion.sum(1, keepdims=True), confusion.shape)), list(names), columns


def draw(confusion: Int64[np.ndarray, "k m"], names: Sequence[str]) -> Image:
    """The matrix, with names and percentages as far as they fit."""
    shares, rows, columns = row_shares(confusion, names)
    cell = int(np.clip(MATRIX_SIDE // len(names), MIN_CELL, MAX_CELL))
    cells = _cells(shares, cell)
    if cell < CELL_FOR_NAMES:
        return cells
    # Names beside the rows end at the cells; those above the columns, turned to read upwards, begin there.
    left, top = _names(rows, cell, right=True), np.rot90(_names(columns, cell, right=False))
    corner = np.full((len(top), left.shape[1], 3), PAPER, np.uint8)
    return np.concatenate([np.concatenate([corner, top], 1), np.concatenate([left, cells], 1)])


def _cells(shares: Float[np.ndarray, "k m"], cell: int) -> Image:
    filled = np.nan_to_num(shares)[..., None]
    colours = np.where(np.isnan(shares)[..., None], EMPTY, NONE + (ALL - NONE) * filled**0.5).round().astype(np.uint8)
    image = np.ascontiguousarray(colours.repeat(cell, 0).repeat(cell, 1))
    if cell >= CELL_FOR_NUMBERS:
        for (i, j), value in np.ndenumerate(shares):
            if value >= 0.005:
                text, ink = f"{value:.0%}"[:-1], PAPER if value > 0.25 else INK
                (w, h), _ = cv2.getTextSize(text, FONT, SIZE, 1)
                at = j * cell + cell // 2 - w // 2, i * cell + cell // 2 + h // 2
                cv2.putText(image, text, at, FONT, SIZE, ink, 1, cv2.LINE_AA)
    return image


def _names(names: Sequence[str], height: int, *, right: bool) -> Image:
    """Names one below the other, at the right or left end of their lines."""
    ascii_names = [name.encode("ascii", "replace").decode() for name in names]  # all that OpenCV's font knows
    sizes = [cv2.getTextSize(name, FONT, SIZE, 1)[0] for name in ascii_names]
    width = max(w for w, _ in sizes) + 2 * GAP
    lines = np.full((len(names) * height, width, 3), PAPER, np.uint8)
    for i, (name, (w, h)) in enumerate(zip(ascii_names, sizes, strict=True)):
        x = width - GAP - w if right else GAP
        cv2.putText(lines, name, (x, i * height + (height + h) // 2), FONT, SIZE, INK, 1, cv2.LINE_AA)
    return lines
