"""Depth maps as coloured meshes: GLB and OBJ, by trimesh (extra `mesh`)."""

import math
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from densevit.errors import ConfigError
from densevit.inference.writers.base import DEPTH_FORMATS, PredictedMap
from densevit.inference.writers.surface import AssumedDepth, SurfaceWriter
from densevit.model_card import HeadSpec
from densevit.ops.surfaces.triangles import EDGE, grid_triangles
from densevit.utils.atomic_io import write_bytes

MAX_VERTICES = 120_000  # of 40 bytes each with their triangles: under 5 MB

# glTF's axes, which viewers of OBJ take for granted, too: right, up, back.
FLIP = np.array([1, -1, -1], np.float32)


class MeshWriter(SurfaceWriter):
    """Triangles between neighbouring pixels, none across depth edges; x right, y up, z towards the viewer."""

    file_type: ClassVar[str]

    def __init__(
        self,
        *,
        min_confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        assume_depth: AssumedDepth | None = None,
        edge: Annotated[float, Field(gt=0)] = EDGE,
    ) -> None:
        """
        Args:
            min_confidence, assume_depth: as of `SurfaceWriter`.
            edge: the relative jump of depth, beyond the slope of the surface, at which the mesh is cut.
        """
        super().__init__(min_confidence=min_confidence, assume_depth=assume_depth)
        self.edge = edge

    def check(self, spec: HeadSpec) -> None:
        super().check(spec)
        try:
            import trimesh  # noqa: F401
        except ImportError:
            raise ConfigError(f"format {self.file_type}: needs trimesh; run: pip install 'densevit[mesh]'") from None

    def write(self, path: Path, frame: PredictedMap) -> int:
        import trimesh

        surface = self.surface(frame)
        stride = max(1, math.ceil((np.count_nonzero(surface.valid) / MAX_VERTICES) ** 0.5))
        some = np.s_[::stride, ::stride]
        points = surface.points[some]
        faces = grid_triangles(points[..., 2], surface.valid[some], self.edge)
        used, faces = np.unique(faces, return_inverse=True)
        mesh = trimesh.Trimesh(
            vertices=points.reshape(-1, 3)[used] * FLIP,
            faces=faces.reshape(-1, 3),
            vertex_colors=frame.image[some].reshape(-1, 3)[used],
            process=False,
        )
        content = mesh.export(file_type=self.file_type)
        data: bytes = content.encode() if isinstance(content, str) else bytes(content)
        write_bytes(path, data)
        return 0


@DEPTH_FORMATS.register("glb")
class Glb(MeshWriter):
    """Binary glTF mesh with a colour per vertex; cut at depth edges. At most 5 MB: large maps are thinned out."""

    suffix, file_type = ".glb", "glb"


@DEPTH_FORMATS.register("obj")
class Obj(MeshWriter):
    """Wavefront OBJ mesh with a colour per vertex, as text; cut at depth edges."""

    suffix, file_type = ".obj", "obj"
