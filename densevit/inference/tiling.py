"""Tiled depth prediction: overlapping tiles at full resolution, aligned with one prediction of the whole image.

A network that knows depth only up to scale and shift chooses both anew for each tile, and a metric one sees another
zoom. So each tile is aligned with the prediction of the whole image, downscaled: by scale and shift, or for metres by a
scale; then tiles are blended where they overlap. Beside the image and the result only one batch of tiles is in memory,
whatever the size. h x w pixels.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil
from numbers import Integral, Real

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from densevit.errors import ConfigError, DataError
from densevit.model_card import HeadSpec, Kind
from densevit.model_inputs import NO_INPUTS, ModelInputs, crop_inputs, join_inputs, resize_inputs, take_inputs
from densevit.ops.align import ALIGNMENTS
from densevit.output_kinds import DEPTH_KINDS, output_kind
from densevit.structures import Box

Rgb = UInt8[np.ndarray, "_ _ 3"]
Maps = dict[str, Float32[np.ndarray, "_ _"]]
Predict = Callable[[UInt8[np.ndarray, "b h w 3"], ModelInputs], dict[str, Float32[np.ndarray, "b 1 h w"]]]
"""Predictions for images, from these and the inputs beside them."""

SAMPLES = 128  # pixels along a side that an alignment uses: 16,000 for two unknowns


@dataclass(frozen=True)
class Tiling:
    side: int  # of a tile, in pixels of the image
    overlap: float = 0.25  # least share of a tile that its neighbour covers, too

    def __post_init__(self) -> None:
        if not isinstance(self.side, Integral) or self.side < 2:
            raise ConfigError(f"tiles: a side of {self.side!r} pixels is none; 518 and more make sense.")
        if not isinstance(self.overlap, Real) or not 0 < self.overlap <= 0.5:
            raise ConfigError(f"tile_overlap: a share over 0 and up to 0.5, got {self.overlap!r}.")

    def spans(self, length: int) -> list["TileSpan"]:
        """Return the tiles along one axis, evenly spread from end to end."""
        side = min(self.side, length)
        shared = max(1, round(side * self.overlap))
        count = ceil((length - shared) / (side - shared)) if length > side else 1
        starts = [round(i * (length - side) / max(count - 1, 1)) for i in range(count)]
        shapes = [blend_weights(side, shared, first=i == 0, last=i == count - 1) for i in range(count)]
        total = np.zeros(length, np.float32)
        for start, shape in zip(starts, shapes, strict=True):
            total[start : start + side] += shape
        return [
            TileSpan(start, start + side, shape / total[start : start + side])
            for start, shape in zip(starts, shapes, strict=True)
        ]

    def tiles(self, h: int, w: int) -> Iterator[tuple["TileSpan", "TileSpan"]]:
        """Return the rows and columns of each tile, row by row."""
        columns = self.spans(w)
        return ((row, column) for row in self.spans(h) for column in columns)


@dataclass(frozen=True, eq=False)
class TileSpan:
    """One tile along one axis."""

    start: int  # its first pixel
    stop: int  # the first after it
    # for blending with the neighbours; those of all tiles add up to 1 in every pixel
    weights: Float32[np.ndarray, " n"]

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


def check_tileable(kinds: Mapping[str, Kind]) -> None:
    """Raise ConfigError: one of these heads is not for depth."""
    if others := [f"{name} ({kind})" for name, kind in kinds.items() if kind not in DEPTH_KINDS]:
        advice = "leave tiles out, or name heads of depth, as by `predict --heads`."
        raise ConfigError(f"tiles: for depth only, not for {', '.join(others)}; {advice}")


def predict_tiled(
    predict: Predict,
    image: Rgb,
    kinds: Mapping[str, Kind],
    tiling: Tiling,
    batch_size: int = 1,
    inputs: ModelInputs = NO_INPUTS,
) -> Maps:
    """Return the map of every depth head, at the size of the image. Raises ConfigError if no head gives depth.

    Args:
        kinds: of the network's heads; those that are not depth are left out.
        batch_size: tiles that go through the network at a time.
        inputs: of the image; each tile is predicted with its own part of them.
    """
    heads = {name: kind for name, kind in kinds.items() if kind in DEPTH_KINDS}
    if not heads:
        raise ConfigError(f"tiles: for depth only; this model gives {', '.join(kinds.values())}.")
    h, w = image.shape[:2]
    small = downscale(image, tiling.side)
    resized = resize_inputs(inputs, (h, w), (small.shape[0], small.shape[1]))
    whole = {name: values[0, 0] for name, values in predict(small[None], resized).items() if name in heads}
    result = {name: np.zeros((h, w), np.float32) for name in heads}
    remaining = tiling.tiles(h, w)
    while tiles := list(islice(remaining, batch_size)):
        crops = np.stack([image[rows.slice, columns.slice] for rows, columns in tiles])
        size = (crops.shape[1], crops.shape[2])
        tile_inputs = join_inputs([crop_inputs(inputs, rows.start, columns.start, size) for rows, columns in tiles])
        maps = predict(crops, tile_inputs)
        for i, (rows, columns) in enumerate(tiles):
            weights = rows.weights[:, None] * columns.weights
            for name, kind in heads.items():
                guide = upsample_tile(whole[name], (h, w), rows, columns)
                result[name][rows.slice, columns.slice] += weights * align_tile(maps[name][i, 0], guide, kind)
    return result


def predict_images(
    predict: Predict,
    images: UInt8[np.ndarray, "b h w 3"],
    box: Box,
    heads: Mapping[str, HeadSpec],
    tiling: Tiling,
    batch_size: int,
    inputs: ModelInputs,
) -> dict[str, Float32[np.ndarray, "b 1 h w"]]:
    """Return `predict_tiled` of a window of each image, at the size of the images: NaN outside, inside within the
    heads' limits, which alignment may have moved values out of."""
    (y0, y1, x0, x1), (h, w) = box, images.shape[1:3]
    kinds, inputs = {name: spec.kind for name, spec in heads.items()}, crop_inputs(inputs, y0, x0, (y1 - y0, x1 - x0))
    found = [
        predict_tiled(predict, image[y0:y1, x0:x1], kinds, tiling, batch_size, take_inputs(inputs, i))
        for i, image in enumerate(images)
    ]
    result = {}
    for name in found[0]:
        # Of a single image a view, for it may be large.
        values = found[0][name][None, None] if len(found) == 1 else np.stack([maps[name] for maps in found])[:, None]
        if (limits := heads[name].metres) is not None:
            np.clip(values, *limits, out=values)
        outside = ((0, 0), (0, 0), (y0, h - y1), (x0, w - x1))
        result[name] = values if values.shape[-2:] == (h, w) else np.pad(values, outside, constant_values=np.nan)
    return result


def downscale(image: Rgb, side: int) -> Rgb:
    """Return the image with no side over `side`, by area averaging."""
    h, w = image.shape[:2]
    factor = min(1.0, side / max(h, w))
    size = (max(1, round(w * factor)), max(1, round(h * factor)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def upsample_tile(
    small: Float32[np.ndarray, "_ _"], size: tuple[int, int], rows: TileSpan, columns: TileSpan
) -> Float32[np.ndarray, "_ _"]:
    """Return the part of a map that a tile covers, as if the map had been resized (bilinear) to `size`."""
    y, x = (small.shape[axis] / size[axis] for axis in (0, 1))
    # Pixel i of the large map lies at (i + 0.5) y - 0.5 of the small one.
    move = np.array([[x, 0, (columns.start + 0.5) * x - 0.5], [0, y, (rows.start + 0.5) * y - 0.5]])
    shape = (columns.stop - columns.start, rows.stop - rows.start)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(small, move, shape, flags=flags, borderMode=cv2.BORDER_REPLICATE))


def align_tile(
    tile: Float32[np.ndarray, "h w"], guide: Float32[np.ndarray, "h w"], kind: Kind
) -> Float32[np.ndarray, "h w"]:
    """Return the tile in the scale of the whole; the whole itself where they cannot be aligned, or only in reverse
    order."""
    step = tuple(slice(None, None, max(1, side // SAMPLES)) for side in tile.shape)
    samples, target = tile[step].ravel(), guide[step].ravel()
    try:
        fit = ALIGNMENTS["log_scale" if output_kind(kind).is_metric else "lstsq"]
        align = fit(samples, target, np.inf)
    except DataError:
        return guide
    rising = align(np.array([0.0, 1.0])) @ [-1, 1] > 0
    return align(tile).astype(np.float32) if rising else guide


def blend_weights(side: int, shared: int, *, first: bool, last: bool) -> Float32[np.ndarray, " {side}"]:
    """Return 1 in the middle, falling to 0 at the ends that have a neighbour."""
    heights = np.ones(side, np.float32)
    if not first:
        heights[:shared] *= ramp(shared)
    if not last:
        heights[side - shared :] *= ramp(shared)[::-1]
    return heights


def ramp(length: int) -> Float32[np.ndarray, " {length}"]:
    """Return weights from just over 0 to just under 1, level at both ends: r(i) + r(n - 1 - i) = 1."""
    steps = (np.arange(length) + 0.5) / length
    return (0.5 - 0.5 * np.cos(np.pi * steps)).astype(np.float32)
