"""How far a predicted depth is to be trusted, as a file."""

import io
from pathlib import Path

import numpy as np

from densevit.data.io.writers import encode
from densevit.errors import ConfigError
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.intervals import confidence, widths
from densevit.utils.atomic_io import write_bytes


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
        write_bytes(path, encode(".png", stored))
        return 0


@DEPTH_FORMATS.register("interval")
class IntervalNpz(MapWriter):
    """Compressed NumPy archive of the interval of each pixel: float32 `low` and `high`, metres, and its `level`.

    As `densevit calibrate --target uncertainty` calibrated it; NaN where there is no depth.
    """

    suffix = ".interval.npz"
    kinds = ("metric",)

    @property
    def needs_uncertainty(self) -> bool:
        return True

    def check(self, spec: HeadSpec) -> None:
        if spec.interval is None:
            raise ConfigError(
                "format interval: no intervals were calibrated; `densevit calibrate --target uncertainty` does that."
            )

    def write(self, path: Path, frame: PredictedMap) -> int:
        assert frame.uncertainty is not None and frame.spec.interval is not None
        depth = np.where(frame.valid(), frame.values, np.nan)
        width = widths(depth, frame.uncertainty, frame.spec.interval)
        low, high = ((depth * np.exp(sign * width)).astype(np.float32) for sign in (-1, 1))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, low=low, high=high, level=frame.spec.interval.level)
        write_bytes(path, buffer.getbuffer())
        return 0
