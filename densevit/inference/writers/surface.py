"""What point clouds and meshes share: metres, colours, and which pixels count. h x w pixels."""

from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32
from pydantic import AfterValidator, Field

from densevit.errors import ConfigError, DataError
from densevit.inference.writers.base import MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.colors import percentile_range
from densevit.ops.geometry import Matrix, backproject
from densevit.ops.intervals import confidence


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
        """The points and which of them count. Raises DataError if no camera is known of this image, or no uncertainty
        where `min_confidence` needs it."""
        depth, valid = self.metres(frame)
        if self.min_confidence > 0:
            if frame.uncertainty is None:
                raise DataError("no uncertainty is known of this image, which min_confidence needs.")
            valid &= confidence(frame.uncertainty) >= self.min_confidence
        camera = frame.matrix()
        return Surface(backproject(np.where(valid, depth, np.float32(0)), camera), valid, camera)

    def metres(self, frame: PredictedMap) -> tuple[Float32[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        """Depth and where there is any; of maps without unit as `assume_depth` says."""
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
