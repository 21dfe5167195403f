"""Depth maps as coloured point clouds in binary PLY."""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from densevit.errors import ConfigError
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.geometry import backproject
from densevit.utils.atomic_io import atomic_write

POINT = np.dtype([(axis, "<f4") for axis in "xyz"] + [(color, "u1") for color in ("red", "green", "blue")])


@DEPTH_FORMATS.register("ply")
class Ply(MapWriter):
    """Binary little-endian PLY, one coloured point per valid pixel: metres; x right, y down, z forward."""

    suffix = ".ply"

    def __init__(self, *, fov: Annotated[float, Field(gt=0, lt=180)] | None = None) -> None:
        """
        Args:
            fov: horizontal field of view in degrees; None where each image has its own camera.
        """
        self.fov = fov

    @property
    def needs_intrinsics(self) -> bool:
        return self.fov is None

    def check(self, spec: HeadSpec) -> None:
        if spec.kind != "metric":
            raise ConfigError(
                f"format ply: needs metric depth, but this model gives {spec.kind} values, known only up to scale and "
                "shift. Choose another format, or a metric model."
            )

    def write(self, path: Path, frame: PredictedMap) -> int:
        valid = frame.valid()
        xyz = backproject(np.where(valid, frame.values, 0), frame.matrix(self.fov))[valid]
        points = np.empty(len(xyz), POINT)
        for i, axis in enumerate("xyz"):
            points[axis] = xyz[:, i]
        for i, color in enumerate(("red", "green", "blue")):
            points[color] = frame.image[..., i][valid]
        content = header(len(points)) + points.tobytes()
        atomic_write(path, lambda file: file.write(content))
        return 0


def header(points: int) -> bytes:
    names = {"<f4": "float", "|u1": "uchar"}
    properties = "".join(f"property {names[POINT[name].str]} {name}\n" for name in POINT.names or ())
    return (
        "ply\nformat binary_little_endian 1.0\ncomment metres; x right, y down, z forward\n"
        f"element vertex {points}\n{properties}end_header\n"
    ).encode()
