"""The interface of every file format for depth maps, and the names a command may use for them.

h x w pixels; metric values in metres, affine and disparity values without unit; NaN or infinite where there is none,
in metric maps also 0 and below. Every format is written whole or not at all.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from densevit.model_card import HeadSpec, Kind
from densevit.registry import Registry


@dataclass(frozen=True, kw_only=True)
class PredictedMap:
    """What a head said of one image, with all that a format may want to say of it."""

    values: Float32[np.ndarray, "*k h w"]  # k logits for classes of pixels
    image: UInt8[np.ndarray, "h w 3"]  # RGB
    spec: HeadSpec

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
    """

    suffix: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = ("metric", "affine", "disparity")

    def check(self, spec: HeadSpec) -> None:  # noqa: B027  most formats hold every kind
        """Raises ConfigError where this format cannot hold what the model gives; called before any work."""

    def begin(self, folder: Path, spec: HeadSpec) -> None:  # noqa: B027  most formats need nothing beside them
        """Writes what all files of an export share; called once, before the first of them."""

    @abstractmethod
    def write(self, path: Path, frame: PredictedMap) -> int:
        """Writes the file and returns how many valid values it had to clip."""


OUTPUTS = Registry[MapWriter]("format")
