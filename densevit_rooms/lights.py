"""Direct and ambient light at surface points. Directions and positions in world axes, metres."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

Points = Float32[np.ndarray, "n 3"]
Occlusion = Callable[[Points, Points], Bool[np.ndarray, " n"]]
"""(origins, directions) -> whether a triangle lies between `origin` and `origin + direction` (RayTracer.occluded)."""


@dataclass(frozen=True)
class Light:
    """A spherical area light; with `facing` it lights that half space only."""

    position: tuple[float, float, float]
    power: tuple[float, float, float]  # linear RGB: irradiance of a surface that faces it at one metre
    radius: float  # metres; the larger, the softer the shadow
    facing: tuple[float, float, float] | None = None


def direct(light: Light, points: Points, normals: Points, occluded: Occlusion, rng: np.random.Generator) -> Points:
    """Return the irradiance of each point, of a surface with that normal; shadow rays decide visibility.

    Each shadow ray ends at a random point of the light; `smooth_light` makes soft shadows of the noise.
    """
    spread = (rng.random(points.shape, dtype=np.float32) - 0.5) * np.float32(1.4 * light.radius)
    to_light = np.asarray(light.position, np.float32) + spread - points
    squared = np.maximum(np.einsum("ij,ij->i", to_light, to_light), np.float32(1e-6))
    length = np.sqrt(squared)
    strength = np.einsum("ij,ij->i", to_light, normals) / length
    if light.facing is not None:
        strength *= np.maximum(to_light @ -np.asarray(light.facing, np.float32) / length, 0)
    # Close to an area light the inverse square law would overexpose the image.
    strength = np.maximum(strength, 0) / np.maximum(squared, 0.25)
    lit = np.flatnonzero(strength > 1e-3)
    strength[lit[occluded(points[lit], to_light[lit])]] = 0
    return np.asarray(strength[:, None] * np.asarray(light.power, np.float32))


def ambient(
    points: Points,
    normals: Points,
    occluded: Occlusion,
    rng: np.random.Generator,
    reach: float,
    occluded_share: float,
) -> Float32[np.ndarray, " n"]:
    """Return the ambient occlusion: the share of ambient light at each point, by one short random ray each, of
    which `occluded_share` remains where it meets something."""
    to_light = normals + _random_directions(rng, len(points))  # cosine-distributed about the normal
    length = np.sqrt(np.einsum("ij,ij->i", to_light, to_light))
    hidden = occluded(points, to_light * (reach / np.maximum(length, 1e-3))[:, None])
    return np.where(hidden, occluded_share, 1.0).astype(np.float32) * (0.85 + 0.15 * normals[:, 2])


def smooth_light(
    light: Float32[np.ndarray, "h w c"], normals: Float32[np.ndarray, "h w 3"], depth: Float32[np.ndarray, "h w"]
) -> Float32[np.ndarray, "h w c"]:
    """Denoise light by a 5 x 5 filter over pixels of similar normal and depth."""
    for axis in (1, 0):
        total, weight = light.copy(), np.ones_like(depth)
        for step in (1, 2):
            here, there = _shifted_slices(axis, step)
            similarity = np.maximum(np.einsum("ijk,ijk->ij", normals[here], normals[there]), 0) ** 8
            similarity *= np.abs(depth[here] - depth[there]) < 0.02 * step * depth[here]
            total[here] += similarity[..., None] * light[there]
            total[there] += similarity[..., None] * light[here]
            weight[here] += similarity
            weight[there] += similarity
        light = total / weight[..., None]
    return light


def _shifted_slices(axis: int, step: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    near, far = slice(None, -step), slice(step, None)
    all_ = slice(None)
    return ((near, all_), (far, all_)) if axis == 0 else ((all_, near), (all_, far))


def _random_directions(rng: np.random.Generator, n: int) -> Points:
    turn = rng.random(n, dtype=np.float32) * np.float32(2 * np.pi)
    z = rng.random(n, dtype=np.float32) * np.float32(2) - np.float32(1)
    ring = np.sqrt(1 - z**2)
    return np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1)
