"""Floor plan of a room: its outline from above, its height, and the floor area that is still free."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float64

CELL = 0.05  # metres

Points = Float64[np.ndarray, "n 2"]


@dataclass(frozen=True)
class FloorPlan:
    """A room's outline, counter-clockwise, in metres; its lowest x and y are 0."""

    outline: Points
    height: float

    @property
    def extent(self) -> tuple[float, float]:
        x, y = self.outline.max(axis=0)
        return float(x), float(y)

    def inside(self, rng: np.random.Generator, margin: float) -> tuple[float, float]:
        """Return a random point at least `margin` metres from all walls, or as far as possible."""
        return FreeFloor(self).spot(rng, margin)

    def walls(self) -> "list[Wall]":
        ends = np.roll(self.outline, -1, axis=0)
        return [Wall(tuple(a), tuple(b)) for a, b in zip(self.outline, ends, strict=True)]

    def draw_wall(self, rng: np.random.Generator) -> "Wall":
        """Return a random wall, a long one more often."""
        walls = self.walls()
        lengths = np.array([wall.length for wall in walls])
        return walls[rng.choice(len(walls), p=lengths / lengths.sum())]


@dataclass(frozen=True)
class Wall:
    """One straight wall, from `start` to `end` with the room on its left."""

    start: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def length(self) -> float:
        return float(np.hypot(self.end[0] - self.start[0], self.end[1] - self.start[1]))

    @property
    def angle(self) -> float:
        """Rotation about z, in radians, that turns an object facing +y so that its back is at this wall."""
        return float(np.arctan2(self.end[1] - self.start[1], self.end[0] - self.start[0]))

    def point(self, along: float, off: float) -> tuple[float, float]:
        """Return the point at `along` metres from the start and `off` metres into the room."""
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return float(self.start[0] + along * cos - off * sin), float(self.start[1] + along * sin + off * cos)


def draw_plan(
    rng: np.random.Generator,
    sides: tuple[float, float],
    height: tuple[float, float],
    width: tuple[float, float] | None = None,
) -> FloorPlan:
    """Return a room of a random shape, its longer side within `sides` and its height within `height` metres. `width`:
    range of the shorter side of a corridor; None: from over half of the longer."""
    long = np.exp(rng.uniform(*np.log(sides)))
    short = max(long * rng.uniform(0.55, 1.0), min(1.7, long)) if width is None else rng.uniform(*width)
    w, d = (long, short) if rng.random() < 0.5 else (short, long)
    shape = SHAPES[rng.choice(len(SHAPES), p=[0.45, 0.3, 0.15, 0.1])] if width is None else rectangle
    outline = np.array(shape(rng, w, d), dtype=np.float64)
    if rng.random() < 0.5:  # mirrored; reversed, to stay counter-clockwise
        outline = (outline * [-1, 1] + [w, 0])[::-1]
    return FloorPlan(np.ascontiguousarray(outline), float(rng.uniform(*height)))


def rectangle(rng: np.random.Generator, w: float, d: float) -> list[tuple[float, float]]:
    return [(0, 0), (w, 0), (w, d), (0, d)]


def ell(rng: np.random.Generator, w: float, d: float) -> list[tuple[float, float]]:
    x, y = w * rng.uniform(0.45, 0.7), d * rng.uniform(0.45, 0.7)
    return [(0, 0), (w, 0), (w, y), (x, y), (x, d), (0, d)]


def cut_corner(rng: np.random.Generator, w: float, d: float) -> list[tuple[float, float]]:
    x, y = w * rng.uniform(0.6, 0.8), d * rng.uniform(0.6, 0.8)
    return [(0, 0), (w, 0), (w, y), (x, d), (0, d)]


def niche(rng: np.random.Generator, w: float, d: float) -> list[tuple[float, float]]:
    """Return a rectangle with a pier, such as a chimney, that projects from one wall."""
    left, right, y = w * rng.uniform(0.3, 0.4), w * rng.uniform(0.6, 0.7), d * rng.uniform(0.75, 0.9)
    return [(0, 0), (w, 0), (w, d), (right, d), (right, y), (left, y), (left, d), (0, d)]


SHAPES = (rectangle, ell, cut_corner, niche)


class FreeFloor:
    """Occupancy grid of the floor, in cells of 5 cm."""

    def __init__(self, plan: FloorPlan) -> None:
        w, d = plan.extent
        self.free = np.zeros((int(np.ceil(d / CELL)) + 2, int(np.ceil(w / CELL)) + 2), dtype=np.uint8)
        self.outline = _cells(plan.outline)
        cv2.fillPoly(self.free, [self.outline], 1)

    def fits(self, corners: Points) -> bool:
        low, high = corners.min(axis=0), corners.max(axis=0)
        if (low < 0).any() or (high > np.array(self.free.shape[::-1]) * CELL).any():
            return False
        return bool(self.free[self._covered(corners)].all())

    def take(self, corners: Points) -> None:
        self.free[self._covered(corners)] = 0

    def clearance(self) -> Float64[np.ndarray, "h w"]:
        """Return the metres from the centre of each cell to the nearest one that is occupied or that a wall goes
        through."""
        inside = cv2.polylines(self.free.copy(), [self.outline], True, 0)
        return np.asarray(cv2.distanceTransform(inside, cv2.DIST_L2, 5), dtype=np.float64) * CELL

    def spot(self, rng: np.random.Generator, margin: float) -> tuple[float, float]:
        """Return a random point at least `margin` metres from walls and everything else, or as far as possible."""
        clear = self.clearance()
        cells = np.argwhere(clear >= min(margin, float(clear.max())))
        y, x = (cells[rng.integers(len(cells))] + 0.5) * CELL
        return float(x), float(y)

    def spots_near(self, place: Float64[np.ndarray, "2"], reach: tuple[float, float], margin: float) -> Points:
        """Return the centres of all cells within `reach` (low, high) metres of `place` that are free as for `spot`."""
        y, x = (np.indices(self.free.shape) + 0.5) * CELL
        away = np.hypot(x - place[0], y - place[1])
        cells = np.argwhere((self.clearance() >= margin) & (reach[0] <= away) & (away <= reach[1]))
        return np.asarray((cells[:, ::-1] + 0.5) * CELL)

    def _covered(self, corners: Points) -> Bool[np.ndarray, "h w"]:
        mask = np.zeros_like(self.free)
        cv2.fillConvexPoly(mask, _cells(corners), 1)
        return np.asarray(mask, dtype=bool)


def footprint(centre: Sequence[float], size: Sequence[float], angle: float) -> Points:
    """Return the corners of a width x depth rectangle at `centre`, rotated by `angle`."""
    w, d = size[0] / 2, size[1] / 2
    cos, sin = np.cos(angle), np.sin(angle)
    corners = np.array([(-w, -d), (w, -d), (w, d), (-w, d)])
    return np.asarray(corners @ np.array([[cos, sin], [-sin, cos]]) + np.asarray(centre[:2]))


def _cells(points: Points) -> "np.ndarray[tuple[int, ...], np.dtype[np.int32]]":
    return np.floor(points / CELL).astype(np.int32)
