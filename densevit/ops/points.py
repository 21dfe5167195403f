"""Sparse maps of measured depth: h x w pixels, depth in metres, 0 where nothing was measured."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from densevit.ops.geometry import Matrix
from densevit.structures import Size

NONE = 2.0**15  # metres, past every depth; a number that fp16 and bf16 have, for runtimes that compute in them


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
    if (points.shape[-2], points.shape[-1]) == size:
        return points
    depth = torch.where(points > 0, points, NONE)
    for dim, side in zip((-2, -1), size, strict=True):
        depth = smallest_along(depth, dim, side)
    return torch.where(depth < NONE, depth, 0)


def smallest_along(values: Tensor, dim: int, side: int) -> Tensor:
    """The smallest of the values that fall into each of `side` pixels along a dimension; `NONE` where none does.

    By gathering and a minimum, which all runtimes of exported files have, unlike scattering.
    """
    length = values.shape[dim]
    pixels = ((np.arange(length, dtype=np.float32) + 0.5) * (side / length)).astype(int).clip(max=side - 1)
    firsts, ends = (np.searchsorted(pixels, np.arange(side), at)[:, None] for at in ("left", "right"))
    candidates = firsts + np.arange((ends - firsts).max())
    places = torch.tensor(np.where(candidates < ends, candidates, length), device=values.device)
    padded = torch.cat([values, torch.full_like(values.narrow(dim, 0, 1), NONE)], dim)
    return torch.unflatten(padded.index_select(dim, places.flatten()), dim, places.shape).amin(dim)


def draw_points(
    depth: Float32[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float32[np.ndarray, "h w"]:
    """Random ones of the measured pixels; all of them where there are fewer than `count`."""
    places = np.flatnonzero(valid)
    chosen = rng.choice(places, min(count, len(places)), replace=False)
    points = np.zeros(depth.size, np.float32)
    points[chosen] = depth.reshape(-1)[chosen]
    return points.reshape(depth.shape)
