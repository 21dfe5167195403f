"""Draws the measured points that `model.conditioning.points` learns from out of an image's depth."""

import math
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from densevit.data.transforms.affine import TRANSFORMS, Transform
from densevit.data.transforms.geometric import Probability, ordered
from densevit.errors import ConfigError
from densevit.ops.points import draw_points
from densevit.structures import Sample

Pattern = Literal["random", "grid", "lidar"]
Count = Annotated[int, Field(gt=0)]

CHANNELS = (8, 16, 32, 64)  # lines of the usual LiDARs


def random_pixels(valid: Bool[np.ndarray, "h w"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pixels as structure from motion gives them, evenly over the image."""
    return np.asarray(draw_points(np.ones(valid.shape, np.float32), valid, count, rng) > 0)


def grid_pixels(valid: Bool[np.ndarray, "h w"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pixels like a time-of-flight sensor: a regular grid at a random offset."""
    h, w = valid.shape
    step = max(1.0, math.sqrt(h * w / count))
    rows, columns = (np.arange(rng.uniform(0, step), side, step).astype(int) for side in (h, w))
    mask = np.zeros((h, w), np.bool_)
    mask[np.ix_(rows, columns)] = True
    return np.asarray(mask & valid)


def lidar_pixels(valid: Bool[np.ndarray, "h w"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pixels like a rotating LiDAR: 8 to 64 lines across the image, slightly tilted and bent, as its mount and
    lens make them; as many columns as give `count` points."""
    h, w = valid.shape
    lines = min(max(int(rng.choice(CHANNELS)), math.ceil(count / w)), h, count)
    columns = min(w, max(1, count // lines))
    u = np.linspace(0, w - 1, columns)
    x = u / max(w - 1, 1) - 0.5
    tilt, bend = rng.uniform(-0.05, 0.05) * h, rng.uniform(-0.2, 0.2) * h
    centre = (np.arange(lines) + rng.uniform()) * (h / lines)
    v = centre[:, None] + tilt * x + bend * (x**2) * (centre[:, None] / h - 0.5)
    rows, across = np.rint(v).astype(int), np.broadcast_to(np.rint(u).astype(int), v.shape)
    inside = (rows >= 0) & (rows < h)
    mask = np.zeros((h, w), np.bool_)
    mask[rows[inside], across[inside]] = True
    return np.asarray(mask & valid)


PATTERNS = {"random": random_pixels, "grid": grid_pixels, "lidar": lidar_pixels}
"""The pixels where a sensor would measure about `count` points."""


@TRANSFORMS.register("sparse_depth")
class SparseDepth(Transform):
    """Gives the model some of the image's depth, as measured points (`model.conditioning`); place it after resizing.

    Images whose depth is not metric get none.
    """

    def __init__(
        self,
        *,
        count: tuple[Count, Count] = (20, 2000),
        patterns: tuple[Pattern, ...] = ("random", "grid", "lidar"),
        dropout: Probability = 0.1,
        noise: Annotated[float, Field(ge=0, lt=1)] = 0.01,
    ) -> None:
        """Raise ConfigError: no pattern, or bounds in the wrong order.

        Args:
            count: fewest and most points; their logarithm is drawn evenly.
            patterns: one is drawn for each image: random pixels, a grid, or lines of a LiDAR.
            dropout: share of the images without points, so that the model is as good without.
            noise: standard deviation of the points' relative error.
        """
        if not patterns:
            raise ConfigError(f"sparse_depth.patterns: there is none; would fit: {', '.join(PATTERNS)}.")
        ordered("sparse_depth.count", count)
        self.count, self.patterns, self.dropout, self.noise = count, patterns, dropout, noise

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        rng = np.random.default_rng(rng.integers(2**63))  # what follows draws alike for all frames of a clip
        if sample.depth is None or sample.valid is None or sample.depth_kind != "metric":
            return sample
        dropped = rng.random() < self.dropout
        pattern = PATTERNS[self.patterns[int(rng.integers(len(self.patterns)))]]
        low, high = self.count
        count = round(math.exp(rng.uniform(math.log(low), math.log(high))))
        measured = pattern(sample.valid & (sample.depth > 0), count, rng)
        error = np.exp(rng.normal(0, self.noise, sample.depth.shape)) if self.noise else 1
        points = np.where(measured & (not dropped), sample.depth * error, 0).astype(np.float32)
        return replace(sample, inputs={**sample.inputs, "points": points})
