"""Depth measured at some pixels of an image, as a list of n points or as a map of h x w pixels, 0 where nothing was
measured; metres."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

from densevit.errors import DataError
from densevit.ops.geometry import Matrix
from densevit.structures import Size

NONE = 2.0**15  # metres, past every depth; a number that fp16 and bf16 have, for runtimes that compute in them

Values = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class MeasuredPoints:
    """Measured points."""

    u: Values
    """Pixels; the centre of the first one is 0, and so is that of `v`."""
    v: Values
    depth: Values
    """Metres along the optical axis."""
    noise: Values | None = None
    """Standard deviation of `depth`; None: it is taken for exact."""

    def __len__(self) -> int:
        return len(self.depth)

    @property
    def places(self) -> Float64[np.ndarray, "n 2"]:
        """The whole pixels (u, v) that the points lie in."""
        return np.asarray(np.rint(np.stack([self.u, self.v], 1)))

    @property
    def log_noise(self) -> Values:
        """The standard deviation of log depth."""
        return np.zeros(len(self)) if self.noise is None else self.noise / self.depth

    def take(self, rows: np.ndarray) -> "MeasuredPoints":
        """Return some of the points."""
        noise = None if self.noise is None else self.noise[rows]
        return MeasuredPoints(self.u[rows], self.v[rows], self.depth[rows], noise)


def as_points(points: object, size: Size) -> MeasuredPoints:
    """Return measured points given as `MeasuredPoints`, as n 3 or n 4 of u, v, metres and their noise, or as h w of
    metres, 0 where none; raise DataError if they are none, or not all in an image of `size`."""
    if not isinstance(points, MeasuredPoints):
        array = np.asarray(points)
        values = array.astype(np.float64)
        if values.shape == size and array.dtype.kind in "iu":
            raise DataError(f"points: a map of {array.dtype}; depth is floats in metres: millimetres / 1000.")
        if values.shape == size:
            v, u = np.nonzero(values)
            points = MeasuredPoints(u.astype(np.float64), v.astype(np.float64), values[v, u])
        elif values.ndim == 2 and values.shape[1] in (3, 4):
            points = MeasuredPoints(*values.T)
        else:
            raise DataError(
                f"points: an array of {values.shape}; points are n 3 (u, v, metres), n 4 (and their noise) or a map of "
                f"{size[0]}x{size[1]}."
            )
    if not len(points):
        raise DataError("points: there are no points.")
    (h, w), numbers = size, np.stack([points.u, points.v, points.depth, points.log_noise], 1)
    good = np.isfinite(numbers).all(1) & (numbers[:, 2] > 0) & (numbers[:, 3] >= 0)
    good &= (numbers[:, 0] >= -0.5) & (numbers[:, 0] < w - 0.5) & (numbers[:, 1] >= -0.5) & (numbers[:, 1] < h - 0.5)
    if not good.all():
        u, v, depth, _ = numbers[~good][0]
        raise DataError(
            f"points: u {u:g}, v {v:g}, depth {depth:g}; a point lies in the image of {h}x{w}, has a depth over 0, and "
            "noise, if any, of 0 or more."
        )
    return points


def one_per_pixel(points: MeasuredPoints) -> MeasuredPoints:
    """Return the nearest of the points in each pixel; of those with noise, one with the least."""
    order = np.lexsort((points.depth, points.log_noise))
    _, first = np.unique(points.places[order], axis=0, return_index=True)
    return points.take(np.sort(order[first]))


def points_as_map(points: MeasuredPoints, size: Size) -> Float32[np.ndarray, "h w"]:
    """Return metres at the pixels of the points, 0 elsewhere; of those in one pixel the nearest."""
    nearest, measured = one_per_pixel(points), np.zeros(size, np.float32)
    columns, rows = nearest.places.T.astype(int)
    measured[rows, columns] = nearest.depth
    return measured


def sample(values: Float[np.ndarray, "h w"], points: MeasuredPoints) -> Values:
    """Return the nearest pixel's values: between pixels of both sides of an edge there is no depth."""
    columns, rows = points.places.T.astype(int)
    return np.asarray(values[rows, columns], dtype=np.float64)


def move_points(points: Float32[np.ndarray, "h w"], matrix: Matrix, size: Size) -> Float32[np.ndarray, "height width"]:
    """Return the points at their new pixels; of those in one pixel the nearest, and none outside. `matrix`: 3x3, pixels
    before -> pixels after."""
    v, u = np.nonzero(points)
    x, y, z = matrix @ np.stack([u, v, np.ones_like(u)]).astype(np.float64)
    columns, rows = (np.rint(coordinate / z).astype(int) for coordinate in (x, y))
    inside = (columns >= 0) & (columns < size[1]) & (rows >= 0) & (rows < size[0])
    depth = points[v, u][inside]
    order = np.argsort(-depth, kind="stable")  # the last one written stays
    moved = np.zeros(size, np.float32)
    moved[rows[inside][order], columns[inside][order]] = depth[order]
    return moved


def resize_points(points: Float[Tensor, "b 1 h w"], size: Size) -> Float[Tensor, "b 1 height width"]:
    """Return the points in an image of another size; of those that fall into one pixel the nearest."""
    if (points.shape[-2], points.shape[-1]) == size:
        return points
    depth = torch.where(points > 0, points, NONE)
    for dim, side in zip((-2, -1), size, strict=True):
        depth = smallest_along(depth, dim, side)
    return torch.where(depth < NONE, depth, 0)


def smallest_along(values: Tensor, dim: int, side: int) -> Tensor:
    """Return the smallest of the values that fall into each of `side` pixels along a dimension; `NONE` where none does.

    By gathering and a minimum, which all runtimes of exported files have, unlike scattering.
    """
    length = values.shape[dim]
    pixels = ((np.arange(length, dtype=np.float32) + 0.5) * (side / length)).astype(int).clip(max=side - 1)
    firsts, ends = (np.searchsorted(pixels, np.arange(side), at)[:, None] for at in ("left", "right"))
    candidates = firsts + np.arange((ends - firsts).max())
    indices = torch.tensor(np.where(candidates < ends, candidates, length), device=values.device)
    padded = torch.cat([values, torch.full_like(values.narrow(dim, 0, 1), NONE)], dim)
    return torch.unflatten(padded.index_select(dim, indices.flatten()), dim, indices.shape).amin(dim)


def draw_points(
    depth: Float32[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], count: int, rng: np.random.Generator
) -> Float32[np.ndarray, "h w"]:
    """Return random ones of the measured pixels; all of them where there are fewer than `count`."""
    candidates = np.flatnonzero(valid)
    drawn = rng.choice(candidates, min(count, len(candidates)), replace=False)
    points = np.zeros(depth.size, np.float32)
    points[drawn] = depth.reshape(-1)[drawn]
    return points.reshape(depth.shape)
