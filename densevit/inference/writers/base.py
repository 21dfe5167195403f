"""The interface of every file format for maps, and the registry of those for depth.

h x w pixels; metric values in metres, affine and disparity values without unit; NaN or infinite where there is none,
in metric maps also 0 and below. Every file is written whole or not at all.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from densevit.inference.camera import Intrinsics
from densevit.model_card import HeadSpec, Kind
from densevit.registry import Registry


@dataclass(frozen=True, kw_only=True)
class PredictedMap:
    """The output of a head for one image, and what a file may say of it."""

    values: Float32[np.ndarray, "*k h w"]  # k logits for classes of pixels
    image: UInt8[np.ndarray, "h w 3"]  # RGB
    spec: HeadSpec
    camera: Intrinsics | None = None

    def valid(self) -> Bool[np.ndarray, "h w"]:
        known: Bool[np.ndarray, "*k h w"] = np.isfinite(self.values)
        if self.spec.kind == "labels":
            return np.asarray(known.all(0))
        return known & (self.values > 0) if self.spec.kind == "metric" else known


class MapWriter(ABC):
    """Writes one format; options are keyword-only.

    Attributes:
        suffix: is added to the image's name.
        kinds: the heads it is for.
        needs_intrinsics: the camera of every image must be known.
    """

    suffix: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = ("metric", "affine", "disparity")

    @property
    def needs_intrinsics(self) -> bool:
        return False

    def check(self, spec: HeadSpec) -> None:  # noqa: B027  most formats hold every kind
        """Raises ConfigError where this format cannot hold what the model gives; called before any work."""

    def write_shared(self, folder: Path, spec: HeadSpec) -> None:  # noqa: B027  most formats have none
        """Writes the files that all images share, as a legend; called once, before the first image."""

    @abstractmethod
    def write(self, path: Path, frame: PredictedMap) -> int:
        """Writes the file and returns how many valid values the format cannot hold; they are written as not valid."""


DEPTH_FORMATS = Registry[MapWriter]("format")
