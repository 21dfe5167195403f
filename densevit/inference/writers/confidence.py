"""How far a predicted depth is to be trusted, as a file."""

from pathlib import Path

import numpy as np

from densevit.data.io.writers import encode
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.ops.intervals import confidence
from densevit.utils.atomic_io import atomic_write


@DEPTH_FORMATS.register("confidence")
class Confidence(MapWriter):
    """16-bit PNG of the probability that depth is within a factor of 1.25: stored / 65535.

    For models with `uncertainty: laplace`; for maps without unit, within 22 % of their mean absolute deviation.
    """

    suffix = ".confidence.png"
    kinds = ("uncertainty",)

    def write(self, path: Path, frame: PredictedMap) -> int:
        shares = np.where(frame.valid(), confidence(frame.values), 0)
        stored = np.rint(shares.clip(0, 1) * 65535).astype(np.uint16)
        atomic_write(path, lambda file: file.write(encode(".png", stored)))
        return 0
