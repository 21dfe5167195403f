"""A confusion matrix as a picture: true classes down, predicted ones across, each row 100%. k classes."""

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Float, Int64, UInt8

from densevit.evaluation.segmentation.metrics import share

Picture = UInt8[np.ndarray, "h w 3"]

SIDE = 760  # pixels that the cells share
LARGEST, SMALLEST = 40, 4  # of a cell
NAMED = 12  # pixels of a cell from which on a name fits beside it
TOLD = 28  # pixels of a cell from which on its percentage fits into it
GAP = 5  # pixels before and behind a name
EMPTY = (238, 240, 243)  # of a class that does not occur
NONE, ALL = np.array([255.0, 255, 255]), np.array([12.0, 52, 120])  # 0% and 100%
FONT, SIZE, INK, PAPER = cv2.FONT_HERSHEY_SIMPLEX, 0.38, (28, 36, 48), (255, 255, 255)


def draw(confusion: Int64[np.ndarray, "k m"], names: Sequence[str]) -> Picture:
    """The last of m = k + 1 columns, pixels predicted as no class, is drawn where it is not empty."""
    headings = [*names, "none"]
    if not confusion[:, -1].any():
        confusion, headings = confusion[:, :-1], headings[:-1]
    rows = share(confusion, np.broadcast_to(confusion.sum(1, keepdims=True), confusion.shape))
    cell = int(np.clip(SIDE // len(names), SMALLEST, LARGEST))
    cells = coloured(rows, cell)
    if cell < NAMED:
        return cells
    # Names beside the rows end at the cells; those above the columns, turned to read upwards, begin there.
    left, top = strip(names, cell, right=True), np.rot90(strip(headings, cell, right=False))
    corner = np.full((len(top), left.shape[1], 3), PAPER, np.uint8)
    return np.concatenate([np.concatenate([corner, top], 1), np.concatenate([left, cells], 1)])


def coloured(rows: Float[np.ndarray, "k m"], cell: int) -> Picture:
    known = np.nan_to_num(rows)[..., None]
    colours = np.where(np.isnan(rows)[..., None], EMPTY, NONE + (ALL - NONE) * known**0.5).round().astype(np.uint8)
    picture = np.ascontiguousarray(colours.repeat(cell, 0).repeat(cell, 1))
    if cell >= TOLD:
        for (i, j), value in np.ndenumerate(rows):
            if value >= 0.005:
                ink = PAPER if value > 0.25 else INK
                write(picture, f"{value:.0%}"[:-1], j * cell + cell // 2, i * cell + cell // 2, ink)
    return picture


def write(picture: Picture, text: str, x: int, y: int, ink: tuple[int, int, int]) -> None:
    """Text around a point."""
    (width, height), _ = cv2.getTextSize(text, FONT, SIZE, 1)
    cv2.putText(picture, text, (x - width // 2, y + height // 2), FONT, SIZE, ink, 1, cv2.LINE_AA)


def strip(names: Sequence[str], height: int, *, right: bool) -> Picture:
    """Names one below the other, at the right or left end of their lines."""
    sizes = [cv2.getTextSize(plain(name), FONT, SIZE, 1)[0] for name in names]
    width = max(w for w, _ in sizes) + 2 * GAP
    lines = np.full((len(names) * height, width, 3), PAPER, np.uint8)
    for i, (name, (w, h)) in enumerate(zip(names, sizes, strict=True)):
        x = width - GAP - w if right else GAP
        cv2.putText(lines, plain(name), (x, i * height + (height + h) // 2), FONT, SIZE, INK, 1, cv2.LINE_AA)
    return lines


def plain(name: str) -> str:
    """OpenCV's font knows ASCII only."""
    return name.encode("ascii", "replace").decode()
