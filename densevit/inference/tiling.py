"""Pictures larger than a network can see at once: sharp tiles, put right by one look at the whole.

A network that knows depth only up to scale and shift chooses both anew for each tile, and one that gives metres sees
another zoom. So each tile is fitted to what the network says of the whole picture, made small: by scale and shift, or
for metres by a scale; then tiles fade into each other where they overlap. Beside the picture and the result only one
tile is held, whatever the size. h x w pixels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import cv2
import numpy as np
from jaxtyping import Float, Float32, UInt8

from densevit.errors import ConfigError, DataError
from densevit.model_card import Kind
from densevit.ops.align import by_least_squares, by_log_scale

Rgb = UInt8[np.ndarray, "_ _ 3"]
Maps = dict[str, Float32[np.ndarray, "_ _"]]
Look = Callable[[UInt8[np.ndarray, "b h w 3"], float], dict[str, Float32[np.ndarray, "b 1 h w"]]]
"""What the network says of pictures that were made smaller by this factor (1 for none)."""

FITS = {"metric": by_log_scale, "affine": by_least_squares, "disparity": by_least_squares}
"""How a tile is fitted to the whole, by what its numbers mean; only the kinds that are depth."""

SAMPLES = 128  # pixels along a side that a fit looks at: 16,000 for two unknowns


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


def demand_depth(kinds: Mapping[str, Kind]) -> None:
    """
    Raises:
        ConfigError: one of these heads gives something else, which tiles leave out.
    """
    if others := [f"{name} ({kind})" for name, kind in kinds.items() if kind not in FITS]:
        raise ConfigError(f"tiles: for depth only, not for {', '.join(others)}.")


def predict_tiled(look: Look, image: Rgb, kinds: Mapping[str, Kind], tiling: Tiling, batch_size: int = 1) -> Maps:
    """The map of every depth head, at the size of the picture.

    Args:
        kinds: of the network's heads; those that are no depth are left out.
        batch_size: tiles that the network sees at a time.

    Raises:
        ConfigError: no head gives depth.
    """
    heads = {name: kind for name, kind in kinds.items() if kind in FITS}
    if not heads:
        raise ConfigError(f"tiles: for depth only; this model gives {', '.join(kinds.values())}.")
    h, w = image.shape[:2]
    small, factor = shrunk(image, tiling.side)
    whole = {name: values[0, 0] for name, values in look(small[None], factor).items() if name in heads}
    result = {name: np.zeros((h, w), np.float32) for name in heads}
    for tiles in chunks(list(tiling.over(h, w)), batch_size):
        seen = np.stack([image[rows.slice, columns.slice] for rows, columns in tiles])
        answers = look(seen, 1.0)
        for i, (rows, columns) in enumerate(tiles):
            weights = rows.weights[:, None] * columns.weights
            for name, kind in heads.items():
                guide = stretched(whole[name], (h, w), rows, columns)
                result[name][rows.slice, columns.slice] += weights * fitted(answers[name][i, 0], guide, kind)
    return result


def shrunk(image: Rgb, side: int) -> tuple[Rgb, float]:
    """The picture with no side over `side`, each pixel the mean of those it stands for; and the factor."""
    h, w = image.shape[:2]
    factor = min(1.0, side / max(h, w))
    size = (max(1, round(w * factor)), max(1, round(h * factor)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA), factor


def stretched(
    small: Float32[np.ndarray, "_ _"], size: tuple[int, int], rows: Span, columns: Span
) -> Float32[np.ndarray, "_ _"]:
    """The part of a map that a tile covers, as if the map had been resized (bilinear) to `size`."""
    y, x = (small.shape[axis] / size[axis] for axis in (0, 1))
    # Pixel i of the large map lies at (i + 0.5) y - 0.5 of the small one.
    move = np.array([[x, 0, (columns.start + 0.5) * x - 0.5], [0, y, (rows.start + 0.5) * y - 0.5]])
    shape = (columns.stop - columns.start, rows.stop - rows.start)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(small, move, shape, flags=flags, borderMode=cv2.BORDER_REPLICATE))


def fitted(
    tile: Float32[np.ndarray, "h w"], guide: Float32[np.ndarray, "h w"], kind: Kind
) -> Float32[np.ndarray, "h w"]:
    """The tile in the terms of the whole. Where it says nothing that fits, or the opposite, the whole stands."""
    every = tuple(slice(None, None, max(1, side // SAMPLES)) for side in tile.shape)
    few, wanted = tile[every].ravel(), guide[every].ravel()
    try:
        align = FITS[kind](few, wanted, np.inf)
    except DataError:
        return guide
    rising = align(np.array([0.0, 1.0])) @ [-1, 1] > 0
    return align(tile).astype(np.float32) if rising else guide


def chunks(tiles: list[tuple[Span, Span]], size: int) -> Iterator[tuple[tuple[Span, Span], ...]]:
    for start in range(0, len(tiles), size):
        yield tuple(tiles[start : start + size])


def paste(
    values: Float32[np.ndarray, "_ _"], box: tuple[int, int, int, int], size: tuple[int, int]
) -> Float32[np.ndarray, "_ _"]:
    """The map of a window (y0, y1, x0, x1) in one of `size`, NaN around."""
    if values.shape == size:
        return values
    whole = np.full(size, np.nan, np.float32)
    whole[box[0] : box[1], box[2] : box[3]] = values
    return whole


def together(maps: Sequence[Float32[np.ndarray, "_ _"]]) -> Float32[np.ndarray, "b 1 h w"]:
    """A batch of maps; of a single one a view, for it may be large."""
    return maps[0][None, None] if len(maps) == 1 else np.stack(maps)[:, None]


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
