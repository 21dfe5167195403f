"""Which of the measured pixels a published program fits its alignment on. h x w pixels."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int64

Mask = Bool[np.ndarray, "h w"]
Places = Int64[np.ndarray, " n"]
"""Positions in the flattened map."""


def every_pixel(counted: Mask) -> Places:
    return np.flatnonzero(counted)


def grid_of_64(counted: Mask) -> Places:
    """MoGe: of each cell of a 64 x 64 grid the counted pixel nearest to its middle, the first of equally near ones.

    Cells may be larger or smaller than a pixel; a pixel belongs to the cell in which its middle lies.
    """
    h, w = counted.shape
    places = np.flatnonzero(counted)
    # The published program computes in float32 and leaves the same margin for it.
    margin = float(np.finfo(np.float32).eps) * max(h, w)
    row, from_row = _cell(places // w, h, margin)
    column, from_column = _cell(places % w, w, margin)
    distance = from_column.astype(np.float32) ** 2 + from_row.astype(np.float32) ** 2
    cell = row * 64 + column
    order = np.lexsort((places, distance, cell))
    first = np.flatnonzero(np.diff(cell[order], prepend=-1))
    chosen: Places = places[order[first]]
    return chosen


def _cell(at: Places, side: int, margin: float) -> tuple[Places, np.ndarray]:
    """The cell of pixels along one side, and how far they are from its middle."""
    size = side / 64
    cell = np.ceil((at + 0.5 - margin) / size).astype(np.int64) - 1
    return cell, at + 0.5 - (cell + 0.5) * size


def columns_to_1024(counted: Mask) -> Places:
    """Marigold's `alignment_max_res 1024`: with a side over that, every so many columns.

    Its program means to shrink both sides, by the one that needs it most, but hands torch an array that torch takes
    for rows of a signal, so only the columns are thinned. ETH3D is scored so.
    """
    h, w = counted.shape
    factor = min(1024 / h, 1024 / w)
    if factor >= 1:
        return every_pixel(counted)
    kept = np.minimum((np.arange(int(w * factor)) * np.float32(1 / factor)).astype(np.int64), w - 1)
    rows, columns = np.nonzero(counted[:, kept])
    places: Places = rows * w + kept[columns]
    return places


SAMPLINGS: dict[str, Callable[[Mask], Places]] = {
    "grid64": grid_of_64,
    "columns1024": columns_to_1024,
}
