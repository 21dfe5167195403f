"""Depth as coloured point clouds (PLY) and meshes (GLB, OBJ, by trimesh: extra `mesh`). h x w pixels, metres."""

import base64
import importlib
import math
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import cv2
import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from PIL import Image
from pydantic import AfterValidator, Field

from densevit.errors import ConfigError, DataError
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.inference.writers.segments import SegmentWriter
from densevit.model_card import HeadSpec
from densevit.ops.calibration import confidence
from densevit.ops.colors import percentile_range
from densevit.ops.geometry import Matrix, backproject
from densevit.ops.normals import normals_of_map
from densevit.ops.segments import draw_segments, exclusive
from densevit.reporting.html_page import render
from densevit.utils.atomic_io import write_text
from densevit.utils.packages import require_packages


def _near_below_far(ends: tuple[float, float]) -> tuple[float, float]:
    if not 0 < ends[0] < ends[1] < np.inf:
        raise ValueError("input should be two numbers of metres, 0 < near < far")
    return ends


AssumedDepth = Annotated[tuple[float, float], AfterValidator(_near_below_far)]


class Surface(NamedTuple):
    """The points of one image in camera axes: x right, y down, z forward, in metres."""

    points: Float32[np.ndarray, "h w 3"]
    valid: Bool[np.ndarray, "h w"]
    camera: Matrix


class SurfaceWriter(MapWriter):
    """A format for the points of an image."""

    def __init__(
        self,
        *,
        min_confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        assume_depth: AssumedDepth | None = None,
    ) -> None:
        """
        Args:
            min_confidence: leave out points whose depth is within a factor of 1.25 with a lower probability; for models
                that predict uncertainty.
            assume_depth: metres that the near and far end (2 % and 98 %) of each map without unit are taken for.
        """
        self.min_confidence, self.assume_depth = min_confidence, assume_depth

    @property
    def needs_intrinsics(self) -> bool:
        return True

    @property
    def needs_uncertainty(self) -> bool:
        return self.min_confidence > 0

    def check(self, spec: HeadSpec) -> None:
        name = type(self).__name__.lower()
        if spec.kind != "metric" and self.assume_depth is None:
            raise ConfigError(
                f"format {name}: needs metric depth, but this model gives {spec.kind} values, known only up to scale "
                "and shift. Choose another format or a metric model, or say what to assume: --assume-depth NEAR,FAR."
            )
        if spec.kind == "metric" and self.assume_depth is not None:
            raise ConfigError(f"format {name}: --assume-depth is for maps without unit, and this model gives metres.")

    def surface(self, frame: PredictedMap) -> Surface:
        """Return the points and which of them count. Raises DataError if no camera is known of this image, or no
        uncertainty where `min_confidence` needs it."""
        depth, valid = self.metres(frame)
        if self.min_confidence > 0:
            if frame.uncertainty is None:
                raise DataError("no uncertainty is known of this image, which min_confidence needs.")
            valid &= confidence(frame.uncertainty) >= self.min_confidence
        camera = frame.matrix()
        return Surface(backproject(np.where(valid, depth, np.float32(0)), camera), valid, camera)

    def metres(self, frame: PredictedMap) -> tuple[Float32[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        """Return the depth and where there is any; of maps without unit as `assume_depth` says."""
        valid = frame.valid()
        if frame.spec.kind == "metric" or self.assume_depth is None:
            return frame.values, valid
        near, far = self.assume_depth
        low, high = percentile_range(np.where(valid, frame.values, np.nan))
        share = (frame.values - low) / (high - low if high > low else 1)
        if frame.spec.kind == "disparity":
            inverse = 1 / far + share * (1 / near - 1 / far)
            valid = valid & (inverse > 0)
            depth = 1 / np.where(valid, inverse, 1)
        else:
            depth = near + share * (far - near)
            valid = valid & (depth > 0)
        return np.where(valid, depth, 0).astype(np.float32), valid

    @property
    def unit(self) -> str:
        """What the numbers are, for the file."""
        if self.assume_depth is None:
            return "metres"
        return "metres if the depth runs from {:g} to {:g} m, which was assumed".format(*self.assume_depth)


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
            min_confidence, assume_depth: as in `SurfaceWriter`.
            normals: nx, ny, nz of plane fits to the depth, too, towards the camera; 0 where there is none.
        """
        super().__init__(min_confidence=min_confidence, assume_depth=assume_depth)
        self.normals = normals

    def encode(self, frame: PredictedMap) -> bytes:
        surface = self.surface(frame)
        points = vertices(surface, frame.image, [*AXES, *NORMALS * self.normals, *COLORS])
        if self.normals:
            depth = np.where(surface.valid, surface.points[..., 2], np.float32(0))
            vectors = normals_of_map(depth, surface.camera)[surface.valid]
            for i, axis in enumerate("xyz"):
                points[f"n{axis}"] = vectors[:, i]
        return header(points, self.unit) + points.tobytes()


@DEPTH_FORMATS.register("segment_cloud")
class SegmentCloud(SegmentWriter):
    """Binary PLY of the points of the depth head, in metres, each in the colour of its segment; property `segment` is
    its number in the files of the other formats, 0 in none."""

    suffix = ".segments.ply"
    beside = ("metric",)
    needs_beside = True

    @property
    def needs_intrinsics(self) -> bool:
        return True

    def encode(self, frame: PredictedMap) -> bytes:
        assert frame.depth is not None
        surface, coloured = SurfaceWriter().surface(frame.depth), draw_segments(frame.image, frame.segments, frame.spec)
        points = vertices(surface, coloured, [*AXES, *COLORS, ("segment", "<i4")])
        points["segment"] = exclusive(frame.segments).segments[surface.valid]
        return header(points, "metres") + points.tobytes()


def vertices(surface: Surface, image: UInt8[np.ndarray, "h w 3"], fields: list[tuple[str, str]]) -> np.ndarray:
    """Return a record for each valid point, with its position and colour; other fields are not set."""
    points = np.empty(np.count_nonzero(surface.valid), np.dtype(fields))
    for columns, values in ((AXES, surface.points), (COLORS, image)):
        for (name, _), value in zip(columns, values[surface.valid].T, strict=True):
            points[name] = value
    return points


def header(points: np.ndarray, unit: str) -> bytes:
    names = {"<f4": "float", "|u1": "uchar", "<i4": "int"}
    properties = "".join(f"property {names[points.dtype[name].str]} {name}\n" for name in points.dtype.names or ())
    return (
        f"ply\nformat binary_little_endian 1.0\ncomment {unit}; x right, y down, z forward\n"
        f"element vertex {len(points)}\n{properties}end_header\n"
    ).encode()


EDGE = 0.05  # a jump of inverse depth beyond the slope beside it, as a share of it, that parts two pixels
MAX_VERTICES = 100_000  # of 44 bytes each with their triangles, and 3 of texture: under 5 MB

# glTF's axes, which viewers of OBJ take for granted, too: right, up, back.
FLIP = np.array([1, -1, -1], np.float32)


class MeshWriter(SurfaceWriter):
    """Triangles between neighbouring pixels, none across depth edges; x right, y up, z towards the viewer."""

    file_type: ClassVar[str]
    export_options: ClassVar[dict[str, Any]] = {}  # of trimesh

    def __init__(
        self,
        *,
        min_confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        assume_depth: AssumedDepth | None = None,
        edge: Annotated[float, Field(gt=0)] = EDGE,
    ) -> None:
        """
        Args:
            min_confidence, assume_depth: as in `SurfaceWriter`.
            edge: the relative jump of depth, beyond the slope of the surface, at which the mesh is cut.
        """
        super().__init__(min_confidence=min_confidence, assume_depth=assume_depth)
        self.edge = edge

    def check(self, spec: HeadSpec) -> None:
        super().check(spec)
        require_packages("trimesh", extra="mesh")

    def encode(self, frame: PredictedMap) -> bytes:
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
            visual=self.visual(
                frame.image, np.arange(surface.valid.size).reshape(surface.valid.shape)[some].ravel()[used]
            ),
            process=False,
        )
        content = mesh.export(file_type=self.file_type, **self.export_options)
        return content.encode() if isinstance(content, str) else bytes(content)

    @abstractmethod
    def visual(self, image: UInt8[np.ndarray, "h w 3"], pixels: Int64[np.ndarray, " n"]) -> Any:
        """Return trimesh's colours of the vertices, which lie at these pixels of the flattened image."""


def unlit(tree: dict[str, Any]) -> None:
    """Mark the materials of a glTF file as unlit (KHR_materials_unlit): a photograph has its light already."""
    for material in tree.get("materials", ()):  # none where there is no triangle
        material["extensions"] = {"KHR_materials_unlit": {}}
    tree["extensionsUsed"] = ["KHR_materials_unlit"]


@DEPTH_FORMATS.register("glb")
class Glb(MeshWriter):
    """Binary glTF mesh with the image as its texture; cut at depth edges. At most 5 MB: large maps are thinned out."""

    suffix, file_type = ".glb", "glb"
    export_options: ClassVar[dict[str, Any]] = {"tree_postprocessor": unlit}

    def visual(self, image: UInt8[np.ndarray, "h w 3"], pixels: Int64[np.ndarray, " n"]) -> Any:
        visual: Any = importlib.import_module("trimesh.visual")
        (h, w), (rows, columns) = image.shape[:2], np.divmod(pixels, image.shape[1])
        scale = min(1.0, (MAX_VERTICES / (h * w)) ** 0.5)
        size = (max(1, int(w * scale)), max(1, int(h * scale)))
        # Not COLOR_0, which glTF takes for linear: viewers show sRGB there as pale.
        texture = Image.fromarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
        material = visual.material.PBRMaterial(baseColorTexture=texture, metallicFactor=0.0, roughnessFactor=1.0)
        uv = np.stack([(columns + 0.5) / w, 1 - (rows + 0.5) / h], 1)  # from the lower left, as trimesh counts
        return visual.TextureVisuals(uv=uv, material=material)


@DEPTH_FORMATS.register("obj")
class Obj(MeshWriter):
    """Wavefront OBJ mesh with a colour per vertex, as text; cut at depth edges."""

    suffix, file_type = ".obj", "obj"

    def visual(self, image: UInt8[np.ndarray, "h w 3"], pixels: Int64[np.ndarray, " n"]) -> Any:
        from trimesh.visual import ColorVisuals

        return ColorVisuals(vertex_colors=image.reshape(-1, 3)[pixels])


def joined(
    depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], axis: int, edge: float = EDGE
) -> Bool[np.ndarray, "_ _"]:
    """Return whether each pixel and the next along an axis lie on one surface; one shorter than the map along that
    axis.

    Inverse depth changes evenly along a plane, however steep it is seen. So what counts is how much it changes more
    than on both sides: at a crease it changes as on one of them, at a depth edge more than on either.
    """
    inverse = np.where(valid, 1 / np.where(valid, depth, 1), np.nan).astype(np.float64)
    step = np.diff(inverse, axis=axis)
    beside = np.full((2, *step.shape), np.nan)
    inner, outer = (slice(1, None), slice(None, -1))
    for row, (to, source) in zip(beside, ((inner, outer), (outer, inner)), strict=True):
        target, origin = [slice(None)] * 2, [slice(None)] * 2
        target[axis], origin[axis] = to, source
        row[tuple(target)] = step[tuple(origin)]
    # Where there is no neighbour, at the border and beside holes, the slope is unknown and taken for none.
    jump = np.abs(step[None] - np.nan_to_num(beside)).min(axis=0)
    first, second = (np.take(inverse, range(k, inverse.shape[axis] - 1 + k), axis=axis) for k in (0, 1))
    # Of NaN, beside holes, the comparison is false.
    with np.errstate(invalid="ignore"):
        return np.asarray(jump <= edge * np.maximum(first, second))


def grid_triangles(
    depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], edge: float = EDGE
) -> Int64[np.ndarray, "f 3"]:
    """Return the triangles between neighbouring pixels, as positions in the flattened map; none across a depth edge or
    a hole.

    They turn so that the side towards the camera is the front: pixel, the one below, the one to the right.
    """
    right, down = joined(depth, valid, 1, edge), joined(depth, valid, 0, edge)
    number = np.arange(depth.size).reshape(depth.shape)
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    upper, lower = right[:-1] & down[:, :-1], right[1:] & down[:, 1:]
    faces = (np.stack([a, c, b], -1)[upper], np.stack([b, c, d], -1)[lower])
    return np.concatenate(faces)


MAX_POINTS = 400_000  # of 9 bytes each, as text a third more: under 5 MB
STEPS = 65535  # of a coordinate between its ends

PAGE = "viewer.html"


@DEPTH_FORMATS.register("viewer")
class Viewer(SurfaceWriter):
    """Self-contained HTML page that shows the point cloud; at most 5 MB, so that large images are thinned out."""

    suffix = ".viewer.html"

    def write(self, path: Path, frame: PredictedMap) -> int:
        surface = self.surface(frame)
        stride = max(1, int(np.ceil((np.count_nonzero(surface.valid) / MAX_POINTS) ** 0.5)))
        some = np.s_[::stride, ::stride]
        valid = surface.valid[some]
        points, colors = surface.points[some][valid], frame.image[some][valid]
        low, high = (points.min(0), points.max(0)) if len(points) else (np.zeros(3), np.ones(3))
        scale = np.where(high > low, (high - low) / STEPS, 1)
        stored = np.rint((points - low) / scale).astype("<u2")
        values = {
            "title": path.name.removesuffix(self.suffix),
            "count": len(points),
            "shown": f"{len(points):,} points" + (f", every {stride}. pixel" if stride > 1 else ""),
            "unit": self.unit,
            "low": low.tolist(),
            "scale": scale.tolist(),
            "spacing": stride / float(surface.camera[0, 0]),
            "middle": float(np.median(points[:, 2])) if len(points) else 1.0,
            "points": base64.b64encode(stored.tobytes()).decode(),
            "colors": base64.b64encode(colors.tobytes()).decode(),
        }
        write_text(path, str(render(PAGE, **values)))
        return 0
