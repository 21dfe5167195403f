"""Triangle meshes with normals and texture coordinates, and the primitives quad and box. Metres, z up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Float64, Int64

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Mesh:
    """A triangle mesh. A face's colour is its texture times its tint."""

    vertices: Float64[np.ndarray, "v 3"]  # metres
    normals: Float32[np.ndarray, "v 3"]  # unit length
    uv: Float32[np.ndarray, "v 2"]  # 1 = one texture, which repeats
    faces: Int64[np.ndarray, "f 3"]
    texture: Int64[np.ndarray, " f"]  # position in the scene's textures
    tint: Float32[np.ndarray, "f 3"]

    def transformed(self, angle: float, offset: Sequence[float]) -> "Mesh":
        """Return it rotated about the z axis by `angle` radians, then translated by `offset`."""
        cos, sin = np.cos(angle), np.sin(angle)
        rotation = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        normals = (self.normals @ rotation.T).astype(np.float32)
        return replace(self, vertices=self.vertices @ rotation.T + np.asarray(offset), normals=normals)

    def tipped(self) -> "Mesh":
        """Return it rotated about the x axis by a right angle, so that its top faces along -y."""
        return replace(
            self,
            vertices=self.vertices[:, [0, 2, 1]] * (1, -1, 1),
            normals=self.normals[:, [0, 2, 1]] * np.array([1, -1, 1], np.float32),
        )

    def scaled(self, x: float, y: float, z: float) -> "Mesh":
        """Return it stretched along the axes, about the origin."""
        factors = np.array([x, y, z])
        normals = self.normals / factors
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
        return replace(self, vertices=self.vertices * factors, normals=normals.astype(np.float32))


def join(meshes: Sequence[Mesh]) -> Mesh:
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    return Mesh(
        vertices=np.concatenate([mesh.vertices for mesh in meshes]),
        normals=np.concatenate([mesh.normals for mesh in meshes]),
        uv=np.concatenate([mesh.uv for mesh in meshes]),
        faces=np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts, strict=False)]),
        texture=np.concatenate([mesh.texture for mesh in meshes]),
        tint=np.concatenate([mesh.tint for mesh in meshes]),
    )


def quad(
    corner: Sequence[float],
    across: Sequence[float],
    up: Sequence[float],
    texture: int,
    tint: Vector = (1.0, 1.0, 1.0),
    tile: float | tuple[float, float] | None = None,
) -> Mesh:
    """Return a parallelogram, seen from where `across` points right and `up` points up. `tile`: metres that one texture
    covers, along both sides or (across, up); None stretches it over the whole."""
    a, b, c = (np.asarray(x, dtype=np.float64) for x in (corner, across, up))
    width, height = np.linalg.norm(b), np.linalg.norm(c)
    size = (width, height) if tile is None else np.broadcast_to(np.asarray(tile), 2)
    right, top = width / size[0], height / size[1]
    normal = np.cross(b, c) / (width * height)
    return Mesh(
        vertices=np.stack([a, a + b, a + b + c, a + c]),
        normals=np.tile(normal.astype(np.float32), (4, 1)),
        uv=np.array([[0, top], [right, top], [right, 0], [0, 0]], dtype=np.float32),
        faces=np.array([[0, 1, 2], [0, 2, 3]]),
        texture=np.full(2, texture),
        tint=np.tile(np.asarray(tint, dtype=np.float32), (2, 1)),
    )


def box(
    low: Sequence[float],
    high: Sequence[float],
    texture: int,
    tint: Vector = (1.0, 1.0, 1.0),
    tile: float | None = 1.0,
) -> Mesh:
    """Return an axis-aligned box; `tile` as in `quad`."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    w, d, h = x1 - x0, y1 - y0, z1 - z0
    sides = [
        ((x1, y1, z0), (-w, 0, 0), (0, 0, h)),  # front, +y
        ((x0, y0, z0), (w, 0, 0), (0, 0, h)),  # back
        ((x0, y1, z0), (0, -d, 0), (0, 0, h)),  # left
        ((x1, y0, z0), (0, d, 0), (0, 0, h)),  # right
        ((x0, y0, z1), (w, 0, 0), (0, d, 0)),  # top
        ((x0, y1, z0), (w, 0, 0), (0, -d, 0)),  # bottom
    ]
    return join([quad(*side, texture, tint, tile) for side in sides])


def revolved(
    profile: Sequence[Sequence[float]], texture: int, tint: Sequence[float], *, flat: float = 1.0, sides: int = 14
) -> Mesh:
    """Return a body of revolution about z through (radius, z) points from its bottom up; edges are smooth around, sharp
    along. `flat`: its depth over its width."""
    points = np.asarray(profile, dtype=np.float64)
    turn = np.linspace(0, 2 * np.pi, sides + 1)
    around = np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], axis=1)
    rings = points[:, :1, None] * around + points[:, 1, None, None] * (0, 0, 1)  # p s+1 3
    vertices = np.stack([rings[:-1], rings[1:]], axis=1).reshape(-1, 3)  # each band has two rings of its own
    run, rise = np.diff(points, axis=0).T
    slope = rise[:, None, None] * around - run[:, None, None] * (0, 0, 1)
    slope /= np.maximum(np.linalg.norm(slope, axis=-1, keepdims=True), 1e-9)
    bands, ring = len(points) - 1, sides + 1
    corner = np.arange(bands)[:, None] * 2 * ring + np.arange(sides)
    a, b, c, d = corner, corner + 1, corner + ring + 1, corner + ring
    faces = np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)], axis=2).reshape(-1, 3)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(run, rise))])
    v = np.stack([along[:-1], along[1:]], axis=1).repeat(ring)
    uv = np.stack([np.tile(turn / np.pi, 2 * bands), v / max(along[-1], 1e-9)], axis=1)
    return Mesh(
        vertices=vertices,
        normals=slope.repeat(2, axis=0).reshape(-1, 3).astype(np.float32),
        uv=uv.astype(np.float32),
        faces=faces,
        texture=np.full(len(faces), texture),
        tint=np.tile(np.asarray(tint, dtype=np.float32), (len(faces), 1)),
    ).scaled(1.0, flat, 1.0)


def cylinder(radius: float, height: float, texture: int, tint: Sequence[float]) -> Mesh:
    """Return a closed cylinder about z that stands on z = 0."""
    return revolved([(0, 0), (radius, 0), (radius, height), (0, height)], texture, tint)
