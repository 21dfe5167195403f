"""Depth maps as coloured point clouds in binary PLY."""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from densevit.inference.writers.base import DEPTH_FORMATS, PredictedMap
from densevit.inference.writers.surface import AssumedDepth, SurfaceWriter
from densevit.ops.surfaces.normals import normals_of_map
from densevit.utils.atomic_io import write_bytes

AXES = [(axis, "<f4") for axis in "xyz"]
NORMALS = [(f"n{axis}", "<f4") for axis in "xyz"]
COLORS = [(color, "u1") for color in ("red", "green", "blue")]


@DEPTH_FORMATS.register("ply")
class Ply(SurfaceWriter):
    """Binary little-endian PLY, one coloured point per valid pixel: metres; x right, y down, z forward."""

    suffix = ".ply"

    def __init__(
        self,
        *,
        min_confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        assume_depth: AssumedDepth | None = None,
        normals: bool = False,
    ) -> None:
        """
        Args:
            min_confidence, assume_depth: as of `SurfaceWriter`.
            normals: nx, ny, nz of plane fits to the depth, too, towards the camera; 0 where there is none.
        """
        super().__init__(min_confidence=min_confidence, assume_depth=assume_depth)
        self.normals = normals

    def write(self, path: Path, frame: PredictedMap) -> int:
        surface = self.surface(frame)
        xyz = surface.points[surface.valid]
        points = np.empty(len(xyz), np.dtype([*AXES, *NORMALS * self.normals, *COLORS]))
        for i, axis in enumerate("xyz"):
            points[axis] = xyz[:, i]
        for i, color in enumerate(("red", "green", "blue")):
            points[color] = frame.image[..., i][surface.valid]
        if self.normals:
            depth = np.where(surface.valid, surface.points[..., 2], np.float32(0))
            vectors = normals_of_map(depth, surface.camera)[surface.valid]
            for i, axis in enumerate("xyz"):
                points[f"n{axis}"] = vectors[:, i]
        content = header(points, self.unit) + points.tobytes()
        write_bytes(path, content)
        return 0


def header(points: np.ndarray, unit: str) -> bytes:
    names = {"<f4": "float", "|u1": "uchar"}
    properties = "".join(f"property {names[points.dtype[name].str]} {name}\n" for name in points.dtype.names or ())
    return (
        f"ply\nformat binary_little_endian 1.0\ncomment {unit}; x right, y down, z forward\n"
        f"element vertex {len(points)}\n{properties}end_header\n"
    ).encode()
