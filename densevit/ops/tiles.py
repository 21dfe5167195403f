"""A picture cut into overlapping tiles, how they fade into each other, and how much of the cut remains to be seen.

h x w pixels. Tiles stand on a grid of rows and columns, so weights factor into one for the row and one for the column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
from jaxtyping import Float, Float32

from densevit.errors import ConfigError


@dataclass(frozen=True)
class Tiling:
    """
    Attributes:
        side: of a tile, in pixels of the picture.
        overlap: share of a tile that its neighbour sees, too; at least.
    """

    side: int
    overlap: float = 0.25

    def __post_init__(self) -> None:
        if self.side < 2:
            raise ConfigError(f"tiles: a side of {self.side} pixels is none; 518 and more make sense.")
        if not 0 < self.overlap <= 0.5:
            raise ConfigError(f"tile_overlap: a share over 0 and up to 0.5, got {self.overlap}.")

    def spans(self, length: int) -> list["Span"]:
        """The tiles along one axis, evenly spread from end to end."""
        side = min(self.side, length)
        shared = max(1, round(side * self.overlap))
        count = ceil((length - shared) / (side - shared)) if length > side else 1
        starts = [round(i * (length - side) / max(count - 1, 1)) for i in range(count)]
        shapes = [hill(side, shared, first=i == 0, last=i == count - 1) for i in range(count)]
        total = np.zeros(length, np.float32)
        for start, shape in zip(starts, shapes, strict=True):
            total[start : start + side] += shape
        return [
            Span(start, start + side, shape / total[start : start + side])
            for start, shape in zip(starts, shapes, strict=True)
        ]

    def over(self, h: int, w: int) -> Iterator[tuple["Span", "Span"]]:
        """Rows and columns of each tile, row by row."""
        columns = self.spans(w)
        return ((row, column) for row in self.spans(h) for column in columns)


@dataclass(frozen=True, eq=False)
class Span:
    """One tile along one axis.

    Attributes:
        start, stop: its first pixel, and the first after it.
        weights: fading in and out where neighbours overlap; those of all tiles add up to 1 in every pixel.
    """

    start: int
    stop: int
    weights: Float32[np.ndarray, " n"]

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


def hill(side: int, shared: int, *, first: bool, last: bool) -> Float32[np.ndarray, " {side}"]:
    """1 in the middle, falling towards the ends that have a neighbour."""
    heights = np.ones(side, np.float32)
    if not first:
        heights[:shared] *= ramp(shared)
    if not last:
        heights[side - shared :] *= ramp(shared)[::-1]
    return heights


def ramp(length: int) -> Float32[np.ndarray, " {length}"]:
    """From just over 0 to just under 1, level at both ends: r(i) + r(n - 1 - i) = 1."""
    steps = (np.arange(length) + 0.5) / length
    return (0.5 - 0.5 * np.cos(np.pi * steps)).astype(np.float32)


def seam(values: Float[np.ndarray, "h w"], tiling: Tiling, reach: int = 8) -> float:
    """How much steeper a map is where tiles begin and end than a few pixels beside: 1 where no seam is to be seen.

    The mean absolute step from one pixel to the next across each such line, over the same across the lines up to
    `reach` pixels away; NaN is left out. 1 for a map that is one tile.
    """
    at: list[float] = []
    beside: list[float] = []
    for axis in (0, 1):
        jumps = np.abs(np.diff(values, axis=axis))
        known = ~np.isnan(jumps)
        steps = np.where(known, jumps, 0).sum(1 - axis) / np.maximum(known.sum(1 - axis), 1)
        lines = seams(tiling, values.shape[axis])
        near = {i for line in lines for i in range(line - reach, line + reach + 1)} - set(lines)
        seen = known.sum(1 - axis) > 0
        at += [steps[line] for line in lines if seen[line]]
        beside += [steps[i] for i in sorted(near) if 0 <= i < len(steps) and seen[i]]
    usual = float(np.mean(beside)) if beside else 0.0
    return float(np.mean(at)) / usual if usual > 0 else 1.0


def seams(tiling: Tiling, length: int) -> list[int]:
    """Where tiles begin and end: the indices of the steps into and out of them."""
    spans = tiling.spans(length)
    begins = [span.start - 1 for span in spans[1:]]
    ends = [span.stop - 1 for span in spans[:-1]]
    return sorted({*begins, *ends})
