"""The interface of every file format for maps, and the registry of those for depth.

h x w pixels; metric values in metres, affine and disparity values without unit; NaN or infinite where there is none,
in metric maps also 0 and below. Every file is written whole or not at all.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from densevit.errors import DataError
from densevit.inference.camera import Intrinsics, Lens
from densevit.model_card import HeadSpec, Kind
from densevit.ops.geometry import Matrix
from densevit.ops.segments import SegmentPrediction, segments_of
from densevit.output_kinds import DEPTH_KINDS
from densevit.registry import Registry


@dataclass(frozen=True, kw_only=True)
class PredictedMap:
    """The output of a head for one image, and what a file may say of it."""

    values: Float32[np.ndarray, "*k h w"]  # k logits for classes of pixels, 3 components of normals
    image: UInt8[np.ndarray, "h w 3"]  # RGB
    spec: HeadSpec
    camera: Intrinsics | Lens | None = None
    uncertainty: Float32[np.ndarray, "h w"] | None = None  # of depth (densevit.models.heads.base)
    classes: Float32[np.ndarray, "..."] | None = None  # of the queries of segments, whose masks are the values
    depth: "PredictedMap | None" = None  # of a metric head beside, for formats that ask for it by `beside`

    @cached_property
    def segments(self) -> SegmentPrediction:
        """What the queries of a head of segments are merged into."""
        assert self.classes is not None
        return segments_of("", {"": self.values, "/classes": self.classes}, self.spec)

    def valid(self) -> Bool[np.ndarray, "h w"]:
        if self.spec.kind in ("labels", "normals"):
            return np.asarray(np.isfinite(self.values).all(0))
        depth = self.values[0] if self.values.ndim == 3 else self.values  # the second is a teacher's confidence
        return np.asarray(np.isfinite(depth) & (depth > 0) if self.spec.kind == "metric" else np.isfinite(depth))

    def matrix(self) -> Matrix:
        """The intrinsics of the image's camera. Raises DataError if it is not known."""
        h, w = self.values.shape[-2:]
        if self.camera is None:
            raise DataError("no camera is known of this image; give fov or intrinsics.")
        return self.camera.matrix((h, w))


class MapWriter(ABC):
    """Writes one format; options are keyword-only."""

    suffix: ClassVar[str]  # is added to the image's name
    kinds: ClassVar[tuple[Kind, ...]] = DEPTH_KINDS  # the heads it is for
    # the heads that it can be made of, where there is none of `kinds`, or another is asked for
    fallback: ClassVar[tuple[Kind, ...]] = ()

    beside: ClassVar[tuple[Kind, ...]] = ()  # the head that it reads, too, where the model has one of these

    @property
    def needs_intrinsics(self) -> bool:
        """Whether the camera of every image must be known, whatever the head gives."""
        return False

    @property
    def needs_uncertainty(self) -> bool:
        """Whether the model must predict the uncertainty of the depth, too."""
        return False

    def needs_camera(self, spec: HeadSpec) -> bool:
        """Whether it needs the camera of every image for what this head gives."""
        return self.needs_intrinsics

    def check(self, spec: HeadSpec) -> None:  # noqa: B027  most formats hold every kind
        """Raises ConfigError where this format cannot hold what the model gives; called before any work."""

    def write_shared(self, folder: Path, spec: HeadSpec) -> None:  # noqa: B027  most formats have none
        """Writes the files that all images share, as a legend; called once, before the first image."""

    def write_list(self, folder: Path, spec: HeadSpec, paths: Iterable[Path]) -> None:  # noqa: B027  most have none
        """Writes the file that lists or joins those of all images; called once, after the last image.

        Args:
            paths: those that are there, in the order of the images.
        """

    @abstractmethod
    def write(self, path: Path, frame: PredictedMap) -> int:
        """Writes the file and returns how many valid values the format cannot hold; they are written as not valid."""


DEPTH_FORMATS = Registry[MapWriter]("format")
