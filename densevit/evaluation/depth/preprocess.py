"""What a protocol compares: the part of a frame, the pixels that an alignment is fitted on, and a prediction that fits.

Maps are h x w; a hole of a prediction is what is not over 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch.nn import functional as F

from densevit.errors import DataError
from densevit.ops.crops import KB
from densevit.structures import Box, Size


def fill_background(depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Fill as KITTI's development kit does: along rows the nearer end of a hole, at the rows' ends the outermost value;
    then columns upwards and downwards. Rows without any value between others stay as they are.

    Source: io_depth.h of the kit for depth prediction (2017).
    """
    measured = (depth > 0) & (depth < np.inf)
    if measured.all() or not measured.any():
        return depth
    before, after = last_measured_columns(measured), last_measured_columns(measured[:, ::-1])[:, ::-1]
    after = np.where(after < 0, after, depth.shape[1] - 1 - after)
    ends = [np.where(ends < 0, np.inf, np.take_along_axis(depth, ends.clip(0), 1)) for ends in (before, after)]
    filled: Float[np.ndarray, "h w"] = np.where(measured, depth, np.minimum(*ends)).astype(depth.dtype)
    rows = np.flatnonzero(measured.any(axis=1))
    inner = np.arange(len(depth))[rows[0] : rows[-1] + 1]
    empty = np.setdiff1d(inner, rows)
    filled[empty] = depth[empty]
    filled[: rows[0]], filled[rows[-1] + 1 :] = filled[rows[0]], filled[rows[-1]]
    return filled


def last_measured_columns(measured: Bool[np.ndarray, "h w"]) -> Int64[np.ndarray, "h w"]:
    """Return the column of the last known value up to each pixel of its row; -1 before the first."""
    columns = np.where(measured, np.arange(measured.shape[1]), -1)
    return np.maximum.accumulate(columns, axis=1)


LARGEST_STRETCH = 1.1  # of an aspect ratio, by rounding sides to what a network takes

Resize = Literal["corners", "borders", "opencv"]


def paste_or_resize(
    prediction: Float[np.ndarray, "_ _"], size: Size, window: Box, how: Resize = "corners"
) -> tuple[Float[np.ndarray, "_ _"], bool]:
    """Return a prediction on a frame of `size`, 0 where it says nothing, and whether it had to be resized.

    One of the frame's size is the frame and one of the window's size is the window, pasted into place. Any other is the
    window at another resolution. Raises DataError if a prediction that lies across its frame.
    """
    if prediction.shape == size:
        return prediction, False
    y0, y1, x0, x1 = window
    inside = (y1 - y0, x1 - x0)
    resized = prediction.shape != inside
    shown = resize_prediction(prediction, inside, how) if resized else prediction
    frame = np.zeros(size, shown.dtype)
    frame[y0:y1, x0:x1] = shown
    return frame, resized


def resize_prediction(
    prediction: Float[np.ndarray, "_ _"], size: Size, how: Resize = "corners"
) -> Float[np.ndarray, "_ _"]:
    """Resize bilinearly, in float64, to a map of `size`. Raises DataError if the map has another aspect ratio.

    Args:
        how: corners: corner pixels lie on corner pixels, as AdaBins and ZoeDepth resize before they score; borders:
            the borders of the maps lie on each other, as in dinov3; opencv: the same as OpenCV computes it, in float32.
    """
    h, w = prediction.shape
    if (h - w) * (size[0] - size[1]) < 0:
        raise DataError(f"the prediction is {h}x{w} where {size[0]}x{size[1]} fits: is it transposed?")
    stretch = (h * size[1]) / (w * size[0])
    if max(stretch, 1 / stretch) > LARGEST_STRETCH:
        raise DataError(
            f"the prediction is {h}x{w}, another aspect ratio than the {size[0]}x{size[1]} of the ground truth. If it "
            f"shows the same view, resize it to {size[0]}x{size[1]} first."
        )
    if how == "opencv":
        return np.asarray(cv2.resize(prediction.astype(np.float32), size[::-1], interpolation=cv2.INTER_LINEAR))
    maps = torch.from_numpy(np.ascontiguousarray(prediction, np.float64))[None, None]
    stretched = F.interpolate(maps, size, mode="bilinear", align_corners=how == "corners")
    return np.asarray(stretched[0, 0])


@dataclass(frozen=True)
class RelativeBox:
    """A box given by shares of the frame's sides, cut down to whole pixels; defined at every size."""

    y0: float
    y1: float
    x0: float
    x1: float
    name: str = "shares"

    def box(self, size: Size) -> Box:
        h, w = size
        return int(self.y0 * h), int(self.y1 * h), int(self.x0 * w), int(self.x1 * w)

    def describe(self, of: str) -> str:
        return f"in {self.y0:.1%} to {self.y1:.1%} of the {of}'s height and {self.x0:.1%} to {self.x1:.1%} of its width"


@dataclass(frozen=True)
class FixedBox:
    """A box of given pixels in frames of one size; in another it would mean another region."""

    pixels: Box
    frame: Size
    name: str = "box"

    def box(self, size: Size) -> Box:
        """Raise DataError if the frame has another size."""
        if size != self.frame:
            raise DataError(
                f"the box {box_text(self.pixels)} belongs to {self.frame[0]}x{self.frame[1]} frames, and this "
                f"ground truth is {size[0]}x{size[1]}. Score it at that size, or under the protocol 'plain'."
            )
        return self.pixels

    def describe(self, of: str) -> str:
        return f"in {box_text(self.pixels)} of the {self.frame[0]}x{self.frame[1]} {of}"


GARG = RelativeBox(0.40810811, 0.99189189, 0.03594771, 0.96405229, "Garg")  # Garg et al. 2016
EIGEN_KITTI = RelativeBox(0.3324324, 0.91351351, 0.0359477, 0.96405229, "Eigen")  # Eigen et al. 2014
EIGEN_NYU = FixedBox((45, 471, 41, 601), (480, 640), "Eigen")

KB_WINDOW = FixedBox((0, 352, 0, 1216), KB, "window")


def box_text(box: Box) -> str:
    return f"rows {box[0]}:{box[1]}, columns {box[2]}:{box[3]}"


Mask = Bool[np.ndarray, "h w"]
Places = Int64[np.ndarray, " n"]
"""Positions in the flattened map."""


def grid_of_64(counted: Mask) -> Places:
    """Return, as MoGe does, of each cell of a 64 x 64 grid the counted pixel nearest to its middle, the first of
    equally near ones.

    Cells may be larger or smaller than a pixel; a pixel belongs to the cell in which its middle lies.
    """
    h, w = counted.shape
    pixels = np.flatnonzero(counted)
    # The published program computes in float32 and leaves the same margin for it.
    margin = float(np.finfo(np.float32).eps) * max(h, w)
    row, from_row = _cell(pixels // w, h, margin)
    column, from_column = _cell(pixels % w, w, margin)
    distance = from_column.astype(np.float32) ** 2 + from_row.astype(np.float32) ** 2
    cell = row * 64 + column
    order = np.lexsort((pixels, distance, cell))
    first = np.flatnonzero(np.diff(cell[order], prepend=-1))
    return np.asarray(pixels[order[first]])


def _cell(at: Places, side: int, margin: float) -> tuple[Places, np.ndarray]:
    """Return the cell of pixels along one side, and how far they are from its middle."""
    size = side / 64
    cell = np.ceil((at + 0.5 - margin) / size).astype(np.int64) - 1
    return cell, at + 0.5 - (cell + 0.5) * size


def columns_to_1024(counted: Mask) -> Places:
    """Return the columns by Marigold's `alignment_max_res 1024`: with a side over that, every n-th column.

    Its program means to shrink both sides, by the one that needs it most, but hands torch an array that torch takes
    for rows of a signal, so only the columns are thinned. ETH3D is scored so.
    """
    h, w = counted.shape
    factor = min(1024 / h, 1024 / w)
    if factor >= 1:
        return np.flatnonzero(counted)
    sampled = np.minimum((np.arange(int(w * factor)) * np.float32(1 / factor)).astype(np.int64), w - 1)
    rows, columns = np.nonzero(counted[:, sampled])
    return np.asarray(rows * w + sampled[columns])


SAMPLINGS: dict[str, Callable[[Mask], Places]] = {
    "grid64": grid_of_64,
    "columns1024": columns_to_1024,
}
