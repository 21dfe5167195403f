"""Collects a scene part by part: meshes with their class and instance, textures, lights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from densevit.data.datasets.rooms import CLASSES
from densevit_rooms.lights import Light
from densevit_rooms.mesh import Mesh, join
from densevit_rooms.textures import Image, Textures


@dataclass(frozen=True)
class Geometry:
    """All triangles of a scene, with what each of them is."""

    mesh: Mesh
    label: UInt8[np.ndarray, " f"]  # position in CLASSES
    instance: Int64[np.ndarray, " f"]  # 0 for walls, floor and ceiling
    flat: Float64[np.ndarray, "f 3"]  # unit normal of the triangle itself
    density: Float32[np.ndarray, " f"]  # units of uv per metre
    textures: Textures
    lights: tuple[Light, ...]


class Builder:
    def __init__(self) -> None:
        self.images: list[Image] = []
        self.meshes: list[Mesh] = []
        self.labels: list[UInt8[np.ndarray, " f"]] = []
        self.instances: list[Int64[np.ndarray, " f"]] = []
        self.lights: list[Light] = []
        self.things = 0

    def texture(self, image: Image) -> int:
        self.images.append(image)
        return len(self.images) - 1

    def add(self, label: str, meshes: Sequence[Mesh], *, thing: bool = True) -> None:
        """Add meshes as one thing with an instance number of its own, or as part of the room (0)."""
        self.things += thing
        mesh = join(meshes)
        self.meshes.append(mesh)
        self.labels.append(np.full(len(mesh.faces), CLASSES.index(label), dtype=np.uint8))
        self.instances.append(np.full(len(mesh.faces), self.things if thing else 0))

    def finish(self) -> Geometry:
        mesh = join(self.meshes)
        a, b, c = mesh.vertices[mesh.faces].transpose(1, 0, 2)
        area = np.cross(b - a, c - a)
        size = np.linalg.norm(area, axis=1)
        (p, q), (r, s) = (x.T for x in (_edge(mesh, 1), _edge(mesh, 2)))
        return Geometry(
            mesh=mesh,
            label=np.concatenate(self.labels),
            instance=np.concatenate(self.instances),
            flat=area / np.maximum(size, 1e-15)[:, None],
            density=np.sqrt(np.abs(p * s - q * r) / np.maximum(size, 1e-12)).astype(np.float32),
            textures=Textures(self.images),
            lights=tuple(self.lights),
        )


def _edge(mesh: Mesh, corner: int) -> Float32[np.ndarray, "f 2"]:
    return np.asarray(mesh.uv[mesh.faces[:, corner]] - mesh.uv[mesh.faces[:, 0]])
