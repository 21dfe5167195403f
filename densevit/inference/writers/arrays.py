"""Depth maps as arrays of float32: exactly what the model gave."""

import io
from pathlib import Path

import numpy as np

from densevit.inference.writers.base import OUTPUTS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.utils.atomic_io import atomic_write


@OUTPUTS.register("npy")
class Npy(MapWriter):
    """NumPy array, float32, exactly what the model gave."""

    suffix = ".npy"

    def write(self, path: Path, frame: PredictedMap) -> int:
        atomic_write(path, lambda file: np.save(file, frame.values, allow_pickle=False))
        return 0


@OUTPUTS.register("npz")
class Npz(MapWriter):
    """Compressed NumPy archive with one float32 array `depth`."""

    suffix = ".npz"

    def write(self, path: Path, frame: PredictedMap) -> int:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, depth=frame.values)
        atomic_write(path, lambda file: file.write(buffer.getbuffer()))
        return 0


@OUTPUTS.register("pfm")
class Pfm(MapWriter):
    """Portable float map: float32, little-endian (scale -1), rows from the bottom up (Debevec's format)."""

    suffix = ".pfm"

    def write(self, path: Path, frame: PredictedMap) -> int:
        h, w = frame.values.shape
        content = f"Pf\n{w} {h}\n-1.0\n".encode() + frame.values[::-1].astype("<f4").tobytes()
        atomic_write(path, lambda file: file.write(content))
        return 0


@OUTPUTS.register("h5")
class Hdf5(MapWriter):
    """HDF5 with one float32 data set `depth` (gzip, checksums) and the attributes kind, unit and range."""

    suffix = ".h5"

    def write(self, path: Path, frame: PredictedMap) -> int:
        import h5py

        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as file:
            # gzip is the one filter that every HDF5 library has; level 1 is within 5% of level 4 at half the time.
            data = file.create_dataset(
                "depth", data=frame.values, compression="gzip", compression_opts=1, shuffle=True, fletcher32=True
            )
            data.attrs.update(attributes(frame.spec))
        atomic_write(path, lambda file: file.write(buffer.getbuffer()))
        return 0


def attributes(spec: HeadSpec) -> dict[str, object]:
    said: dict[str, object] = {"kind": spec.kind, "unit": spec.unit}
    return said if spec.range is None else said | {"range": spec.range}
