"""Depth maps as coloured point clouds in binary PLY."""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from densevit.errors import ConfigError, DataError
from densevit.inference.writers.base import OUTPUTS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.geometry import Matrix, backproject, pinhole_from_fov
from densevit.utils.atomic_io import atomic_write

POINT = np.dtype([(axis, "<f4") for axis in "xyz"] + [(color, "u1") for color in ("red", "green", "blue")])


@OUTPUTS.register("ply")
class Ply(MapWriter):
    """Binary little-endian PLY, one coloured point per valid pixel: metres; x right, y down, z forward."""

    suffix = ".ply"

    def __init__(
        self,
        *,
        fov: Annotated[float, Field(gt=0, lt=180)] | None = None,
        intrinsics: tuple[float, float, float, float] | None = None,
    ) -> None:
        """Takes one description of the camera.

        Args:
            fov: horizontal field of view in degrees.
            intrinsics: fx, fy, cx, cy in pixels of the images.
        """
        if (fov is None) == (intrinsics is None):
            raise ConfigError("format ply: give the camera as one of fov (degrees) or intrinsics (fx, fy, cx, cy).")
        if intrinsics is not None and not all(0 < value < math.inf for value in intrinsics):
            raise ConfigError(f"format ply: intrinsics fx, fy, cx, cy are pixels above 0, got {intrinsics}.")
        self.fov = fov
        self.intrinsics = intrinsics

    def check(self, spec: HeadSpec) -> None:
        if spec.kind != "metric":
            raise ConfigError(
                f"format ply: needs metric depth, but this model gives {spec.kind} values, known only up to scale and "
                "shift. Choose another format, or a metric model."
            )

    def write(self, path: Path, frame: PredictedMap) -> int:
        valid = frame.valid()
        h, w = valid.shape
        xyz = backproject(np.where(valid, frame.values, 0), self.camera((h, w)))[valid]
        points = np.empty(len(xyz), POINT)
        for i, axis in enumerate("xyz"):
            points[axis] = xyz[:, i]
        for i, color in enumerate(("red", "green", "blue")):
            points[color] = frame.image[..., i][valid]
        content = header(len(points)) + points.tobytes()
        atomic_write(path, lambda file: file.write(content))
        return 0

    def camera(self, size: tuple[int, int]) -> Matrix:
        """Of images of (h, w)."""
        if self.intrinsics is None:
            return pinhole_from_fov(size, self.fov or 0)
        fx, fy, cx, cy = self.intrinsics
        if cx >= size[1] or cy >= size[0]:
            raise DataError(
                f"intrinsics: the principal point ({cx:g}, {cy:g}) lies outside this image of {size[0]}x{size[1]}."
            )
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], np.float64)


def header(points: int) -> bytes:
    names = {"<f4": "float", "|u1": "uchar"}
    properties = "".join(f"property {names[POINT[name].str]} {name}\n" for name in POINT.names or ())
    return (
        "ply\nformat binary_little_endian 1.0\ncomment metres; x right, y down, z forward\n"
        f"element vertex {points}\n{properties}end_header\n"
    ).encode()
