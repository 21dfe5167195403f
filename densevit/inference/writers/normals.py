"""Surface normals as files: of a head that gives them, else of the plane fits to metric depth. h x w pixels."""

import io

import numpy as np

from densevit.data.io.normals import Axes, Normals, change_axes, encode_exr, encode_normals
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.normals import normals_of_map
from densevit.utils.packages import require_packages


class NormalsWriter(MapWriter):
    """A format for surface normals."""

    kinds = ("normals",)
    fallback = ("metric",)

    def __init__(self, *, axes: Axes = "opencv") -> None:
        """
        Args:
            axes: of the files: opencv (right, down, forward, towards the camera), opengl (right, up, back; Marigold,
                Hypersim) or dsine (left, up, back; DSINE, StableNormal).
        """
        self.axes = axes

    def needs_camera(self, spec: HeadSpec) -> bool:
        return spec.kind == "metric"

    def normals(self, frame: PredictedMap) -> Normals:
        """Return the unit vectors in the axes of the files; 0 where there are none."""
        valid = frame.valid()
        if frame.spec.kind == "normals":
            vectors = np.where(valid[..., None], frame.values.transpose(1, 2, 0), np.float32(0))
        else:
            vectors = normals_of_map(np.where(valid, frame.values, np.float32(0)), frame.matrix())
        return change_axes(vectors, self.axes)


@DEPTH_FORMATS.register("normals")
class NormalsPng(NormalsWriter):
    """16-bit RGB PNG: (n + 1) / 2 * 65535 of each component, to the nearest; (0, 0, 0) where there is no normal."""

    suffix = ".normals.png"

    def encode(self, frame: PredictedMap) -> bytes:
        return encode_normals(self.normals(frame))


@DEPTH_FORMATS.register("normals_npy")
class NormalsNpy(NormalsWriter):
    """NumPy array, float32 h w 3; 0 where there is no normal."""

    suffix = ".normals.npy"

    def encode(self, frame: PredictedMap) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, self.normals(frame), allow_pickle=False)
        return buffer.getvalue()


@DEPTH_FORMATS.register("normals_exr")
class NormalsExr(NormalsWriter):
    """OpenEXR with float32 channels R, G, B, which hold x, y, z; 0 where there is no normal. Needs the extra `exr`."""

    suffix = ".normals.exr"

    def check(self, spec: HeadSpec) -> None:
        require_packages("OpenEXR", extra="exr")

    def encode(self, frame: PredictedMap) -> bytes:
        return encode_exr(self.normals(frame))
