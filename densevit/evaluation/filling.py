"""How a program fills the holes of a prediction before it scores it. Maps are h x w; a hole is what is not over 0."""

import numpy as np
from jaxtyping import Bool, Float, Int64


def fill_background(depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """As KITTI's development kit does: along rows the nearer end of a hole, at the rows' ends the outermost value; then
    columns upwards and downwards. Rows without any value between others stay as they are.

    Source: io_depth.h of the kit for depth prediction (2017).
    """
    known = (depth > 0) & (depth < np.inf)
    if known.all() or not known.any():
        return depth
    before, after = reach(known), reach(known[:, ::-1])[:, ::-1]
    after = np.where(after < 0, after, depth.shape[1] - 1 - after)
    ends = [np.where(ends < 0, np.inf, np.take_along_axis(depth, ends.clip(0), 1)) for ends in (before, after)]
    filled: Float[np.ndarray, "h w"] = np.where(known, depth, np.minimum(*ends)).astype(depth.dtype)
    rows = np.flatnonzero(known.any(axis=1))
    inner = np.arange(len(depth))[rows[0] : rows[-1] + 1]
    empty = np.setdiff1d(inner, rows)
    filled[empty] = depth[empty]
    filled[: rows[0]], filled[rows[-1] + 1 :] = filled[rows[0]], filled[rows[-1]]
    return filled


def reach(known: Bool[np.ndarray, "h w"]) -> Int64[np.ndarray, "h w"]:
    """The column of the last known value up to each pixel of its row; -1 before the first."""
    columns = np.where(known, np.arange(known.shape[1]), -1)
    return np.maximum.accumulate(columns, axis=1)
