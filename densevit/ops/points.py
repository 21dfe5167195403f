"""Sparse maps of measured depth: h x w pixels, depth in metres, 0 where nothing was measured."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from densevit.ops.geometry import Matrix
from densevit.structures import Size


def move_points(points: Float32[np.ndarray, "h w"], matrix: Matrix, size: Size) -> Float32[np.ndarray, "height width"]:
    """The points at their new pixels; of those in one pixel the nearest, and none outside.

    Args:
        matrix: 3x3, pixels before -> pixels after.
    """
    v, u = np.nonzero(points)
    x, y, z = matrix @ np.stack([u, v, np.ones_like(u)]).astype(np.float64)
    columns, rows = (np.rint(place / z).astype(int) for place in (x, y))
    inside = (columns >= 0) & (columns < size[1]) & (rows >= 0) & (rows < size[0])
    depth = points[v, u][inside]
    order = np.argsort(-depth, kind="stable")  # the last one written stays
    moved = np.zeros(size, np.float32)
    moved[rows[inside][order], columns[inside][order]] = depth[order]
    return moved


def resize_points(points: Float[Tensor, "b 1 h w"], size: Size) -> Float[Tensor, "b 1 height width"]:
    """The points in an image of another size; of those that fall into one pixel the nearest."""
    before = (points.shape[-2], points.shape[-1])
    if before == size:
        return points
    y, x = (new / old for new, old in zip(size, before, strict=True))
    image, _, v, u = points.nonzero(as_tuple=True)
    depth = points[image, 0, v, u]
    rows = ((v + 0.5) * y).long().clamp(max=size[0] - 1)
    columns = ((u + 0.5) * x).long().clamp(max=size[1] - 1)
    places = (image * size[0] + rows) * size[1] + columns
    resized = torch.full((len(points) * size[0] * size[1],), torch.inf, dtype=points.dtype, device=points.device)
    resized = resized.scatter_reduce(0, places, depth, "amin")
    return torch.where(resized.isfinite(), resized, 0).reshape(len(points), 1, *size)


def draw_points(
    depth: Float32[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float32[np.ndarray, "h w"]:
    """Random ones of the measured pixels; all of them where there are fewer than `count`."""
    places = np.flatnonzero(valid)
    chosen = rng.choice(places, min(count, len(places)), replace=False)
    points = np.zeros(depth.size, np.float32)
    points[chosen] = depth.reshape(-1)[chosen]
    return points.reshape(depth.shape)
