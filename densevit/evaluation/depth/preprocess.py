"""How a program fills the holes of a prediction before it scores it. Maps are h x w; a hole is what is not over 0."""

from typing import Literal

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch.nn import functional as F

from densevit.errors import DataError
from densevit.structures import Box, Size


def fill_background(depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """As KITTI's development kit does: along rows the nearer end of a hole, at the rows' ends the outermost value; then
    columns upwards and downwards. Rows without any value between others stay as they are.

    Source: io_depth.h of the kit for depth prediction (2017).
    """
    known = (depth > 0) & (depth < np.inf)
    if known.all() or not known.any():
        return depth
    before, after = last_known_columns(known), last_known_columns(known[:, ::-1])[:, ::-1]
    after = np.where(after < 0, after, depth.shape[1] - 1 - after)
    ends = [np.where(ends < 0, np.inf, np.take_along_axis(depth, ends.clip(0), 1)) for ends in (before, after)]
    filled: Float[np.ndarray, "h w"] = np.where(known, depth, np.minimum(*ends)).astype(depth.dtype)
    rows = np.flatnonzero(known.any(axis=1))
    inner = np.arange(len(depth))[rows[0] : rows[-1] + 1]
    empty = np.setdiff1d(inner, rows)
    filled[empty] = depth[empty]
    filled[: rows[0]], filled[rows[-1] + 1 :] = filled[rows[0]], filled[rows[-1]]
    return filled


def last_known_columns(known: Bool[np.ndarray, "h w"]) -> Int64[np.ndarray, "h w"]:
    """The column of the last known value up to each pixel of its row; -1 before the first."""
    columns = np.where(known, np.arange(known.shape[1]), -1)
    return np.maximum.accumulate(columns, axis=1)


LARGEST_STRETCH = 1.1  # of an aspect ratio, by rounding sides to what a network takes

Resize = Literal["corners", "borders", "opencv"]


def paste_or_resize(
    prediction: Float[np.ndarray, "_ _"], size: Size, window: Box, how: Resize = "corners"
) -> tuple[Float[np.ndarray, "_ _"], bool]:
    """A prediction on a frame of `size`, 0 where it says nothing, and whether it had to be resized.

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
    """Bilinear, in float64, to a map of `size`. Raises DataError if the map has another aspect ratio.

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
