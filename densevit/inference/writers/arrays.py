"""Depth as numbers: arrays of float32, exactly what the model gave, and how far they are to be trusted."""

import io
from pathlib import Path

import numpy as np

from densevit.data.io.writers import encode, encode_npz, encode_pfm
from densevit.errors import ConfigError
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.calibration import confidence, widths
from densevit.utils.atomic_io import atomic_write


@DEPTH_FORMATS.register("npy")
class Npy(MapWriter):
    """NumPy array, float32, exactly what the model gave."""

    suffix = ".npy"

    def write(self, path: Path, frame: PredictedMap) -> int:
        atomic_write(path, lambda file: np.save(file, frame.values, allow_pickle=False))
        return 0


@DEPTH_FORMATS.register("npz")
class Npz(MapWriter):
    """Compressed NumPy archive with one float32 array `depth`."""

    suffix = ".npz"

    def encode(self, frame: PredictedMap) -> bytes:
        return encode_npz(depth=frame.values)


@DEPTH_FORMATS.register("pfm")
class Pfm(MapWriter):
    """Portable float map: float32, little-endian (scale -1), rows from the bottom up (Debevec's format)."""

    suffix = ".pfm"

    def encode(self, frame: PredictedMap) -> bytes:
        return encode_pfm(frame.values)


@DEPTH_FORMATS.register("h5")
class Hdf5(MapWriter):
    """HDF5 with one float32 data set `depth` (gzip, checksums) and the attributes kind, unit and range."""

    suffix = ".h5"

    def encode(self, frame: PredictedMap) -> bytes:
        import h5py

        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as file:
            # gzip is the one filter that every HDF5 library has; level 1 is within 5% of level 4 at half the time.
            data = file.create_dataset(
                "depth", data=frame.values, compression="gzip", compression_opts=1, shuffle=True, fletcher32=True
            )
            data.attrs.update(attributes(frame.spec))
        return buffer.getvalue()


def attributes(spec: HeadSpec) -> dict[str, object]:
    values: dict[str, object] = {"kind": spec.kind, "unit": spec.unit}
    return values if spec.metres is None else values | {"range": spec.metres}


@DEPTH_FORMATS.register("confidence")
class Confidence(MapWriter):
    """16-bit PNG of the probability that depth is within a factor of 1.25: stored / 65535.

    For models with `uncertainty: laplace`; for maps without unit, within 22 % of their mean absolute deviation.
    """

    suffix = ".confidence.png"
    kinds = ("uncertainty",)

    def encode(self, frame: PredictedMap) -> bytes:
        shares = np.where(frame.valid(), confidence(frame.values), 0)
        return encode(".png", np.rint(shares.clip(0, 1) * 65535).astype(np.uint16))


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
                "format interval: no intervals were calibrated; `densevit calibrate --target uncertainty` does that, "
                "for maps without --points."
            )

    def encode(self, frame: PredictedMap) -> bytes:
        assert frame.uncertainty is not None and frame.spec.interval is not None
        depth = np.where(frame.valid(), frame.values, np.nan)
        width = widths(depth, frame.uncertainty, frame.spec.interval)
        low, high = ((depth * np.exp(sign * width)).astype(np.float32) for sign in (-1, 1))
        return encode_npz(low=low, high=high, level=frame.spec.interval.level)
