"""Depth maps as arrays of float32: exactly what the model gave."""

import io
from pathlib import Path

import numpy as np

from densevit.data.io.writers import encode_pfm
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.utils.atomic_io import atomic_write, write_bytes


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

    def write(self, path: Path, frame: PredictedMap) -> int:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, depth=frame.values)
        write_bytes(path, buffer.getbuffer())
        return 0


@DEPTH_FORMATS.register("pfm")
class Pfm(MapWriter):
    """Portable float map: float32, little-endian (scale -1), rows from the bottom up (Debevec's format)."""

    suffix = ".pfm"

    def write(self, path: Path, frame: PredictedMap) -> int:
        write_bytes(path, encode_pfm(frame.values))
        return 0


@DEPTH_FORMATS.register("h5")
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
        write_bytes(path, buffer.getbuffer())
        return 0


def attributes(spec: HeadSpec) -> dict[str, object]:
    values: dict[str, object] = {"kind": spec.kind, "unit": spec.unit}
    return values if spec.metres is None else values | {"range": spec.metres}
