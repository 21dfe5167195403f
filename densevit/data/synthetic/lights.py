"""Lights, and how much of each reaches a point. Directions and positions in world axes, metres."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

Points = Float32[np.ndarray, "n 3"]
Occlusion = Callable[[Points, Points], Bool[np.ndarray, " n"]]
"""Whether something stands between origins and the ends of the ways from them (Tracer.blocked)."""


@dataclass(frozen=True)
class Light:
    """A round lamp that shines everywhere, or into the half space of `facing`."""

    position: tuple[float, float, float]
    power: tuple[float, float, float]  # linear RGB; at one metre it falls on a surface that faces it
    radius: float  # metres; the larger, the softer the shadow
    facing: tuple[float, float, float] | None = None


def direct(light: Light, points: Points, normals: Points, blocked: Occlusion, rng: np.random.Generator) -> Points:
    """Light that reaches each point unhindered, on a surface with that normal.

    Each shadow ray ends at a random place of the lamp; `even` makes soft rims of the noise.
    """
    spread = (rng.random(points.shape, dtype=np.float32) - 0.5) * np.float32(1.4 * light.radius)
    ways = np.asarray(light.position, np.float32) + spread - points
    squared = np.maximum(np.einsum("ij,ij->i", ways, ways), np.float32(1e-6))
    length = np.sqrt(squared)
    strength = np.einsum("ij,ij->i", ways, normals) / length
    if light.facing is not None:
        strength *= np.maximum(ways @ -np.asarray(light.facing, np.float32) / length, 0)
    # Next to a lamp of some size the inverse square law would burn out the picture.
    strength = np.maximum(strength, 0) / np.maximum(squared, 0.25)
    lit = np.flatnonzero(strength > 1e-3)
    strength[lit[blocked(points[lit], ways[lit])]] = 0
    return np.asarray(strength[:, None] * np.asarray(light.power, np.float32))


def ambient(
    points: Points, normals: Points, blocked: Occlusion, rng: np.random.Generator, reach: float
) -> Float32[np.ndarray, " n"]:
    """The share of light from all around, less in corners: one short ray per point, of random direction."""
    ways = normals + _on_sphere(rng, len(points))  # cosine-distributed about the normal
    length = np.sqrt(np.einsum("ij,ij->i", ways, ways))
    hidden = blocked(points, ways * (reach / np.maximum(length, 1e-3))[:, None])
    return np.where(hidden, 0.45, 1.0).astype(np.float32) * (0.85 + 0.15 * normals[:, 2])


def even(
    light: Float32[np.ndarray, "h w c"], normals: Float32[np.ndarray, "h w 3"], depth: Float32[np.ndarray, "h w"]
) -> Float32[np.ndarray, "h w c"]:
    """Averages light over 5 x 5 pixels of one surface: those of about one normal and one depth."""
    for axis in (1, 0):
        total, weight = light.copy(), np.ones_like(depth)
        for step in (1, 2):
            here, there = _shifted(axis, step)
            alike = np.maximum(np.einsum("ijk,ijk->ij", normals[here], normals[there]), 0) ** 8
            alike *= np.abs(depth[here] - depth[there]) < 0.02 * step * depth[here]
            total[here] += alike[..., None] * light[there]
            total[there] += alike[..., None] * light[here]
            weight[here] += alike
            weight[there] += alike
        light = total / weight[..., None]
    return light


def _shifted(axis: int, step: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    near, far = slice(None, -step), slice(step, None)
    everything = slice(None)
    return ((near, everything), (far, everything)) if axis == 0 else ((everything, near), (everything, far))


def _on_sphere(rng: np.random.Generator, n: int) -> Points:
    turn = rng.random(n, dtype=np.float32) * np.float32(2 * np.pi)
    z = rng.random(n, dtype=np.float32) * np.float32(2) - np.float32(1)
    ring = np.sqrt(1 - z**2)
    return np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1)
