"""Depth as a surface: depth edges, and the triangles between pixels that no edge parts. h x w pixels."""

import numpy as np
from jaxtyping import Bool, Float, Int64

EDGE = 0.05  # a jump of inverse depth beyond the slope beside it, as a share of it, that parts two pixels


def joined(
    depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], axis: int, edge: float = EDGE
) -> Bool[np.ndarray, "_ _"]:
    """Whether each pixel and the next along an axis lie on one surface; one shorter than the map along that axis.

    Inverse depth changes evenly along a plane, however steep it is seen. So what counts is how much it changes more
    than on both sides: at a crease it changes as on one of them, at a depth edge more than on either.
    """
    inverse = np.where(valid, 1 / np.where(valid, depth, 1), np.nan).astype(np.float64)
    step = np.diff(inverse, axis=axis)
    beside = np.full((2, *step.shape), np.nan)
    inner, outer = (slice(1, None), slice(None, -1))
    for row, (to, source) in zip(beside, ((inner, outer), (outer, inner)), strict=True):
        target, origin = [slice(None)] * 2, [slice(None)] * 2
        target[axis], origin[axis] = to, source
        row[tuple(target)] = step[tuple(origin)]
    # Where there is no neighbour, at the border and beside holes, the slope is unknown and taken for none.
    jump = np.abs(step[None] - np.nan_to_num(beside)).min(axis=0)
    first, second = (np.take(inverse, range(k, inverse.shape[axis] - 1 + k), axis=axis) for k in (0, 1))
    # Of NaN, beside holes, the comparison is false.
    with np.errstate(invalid="ignore"):
        return np.asarray(jump <= edge * np.maximum(first, second))


def grid_triangles(
    depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], edge: float = EDGE
) -> Int64[np.ndarray, "f 3"]:
    """Triangles between neighbouring pixels, as positions in the flattened map; none across a depth edge or a hole.

    They turn so that the side towards the camera is the front: pixel, the one below, the one to the right.
    """
    right, down = joined(depth, valid, 1, edge), joined(depth, valid, 0, edge)
    number = np.arange(depth.size).reshape(depth.shape)
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    upper, lower = right[:-1] & down[:, :-1], right[1:] & down[:, 1:]
    faces = (np.stack([a, c, b], -1)[upper], np.stack([b, c, d], -1)[lower])
    return np.concatenate(faces)
