"""Measurements of pairs of frames before the training: shared by the processes, and kept in the folder of the run."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset, dataset_fingerprint
from densevit.data.index.paths import file_version
from densevit.data.io.arrays import read_array
from densevit.data.loading.clips import videos
from densevit.data.loading.prefetch import ordered_parallel_map
from densevit.errors import DataError
from densevit.structures import Sample
from densevit.utils import atomic_io
from densevit.utils.process_group import ALONE, ProcessGroup

VERSION = 1  # of what is measured: another one measures anew

IndexPairs = Sequence[tuple[int, int]]
Rows = Float32[np.ndarray, "pairs width"]
Measure = Callable[[Sample, Sample], Sequence[float] | np.ndarray]


@dataclass(frozen=True)
class PairMeasurements:
    """Measures pairs of frames. All processes call it together: each measures its share, and gets all results.

    Attributes:
        folder: of the run; where it exists, `measured/` in it has the results for a run that is resumed.
        workers: of each process.
    """

    folder: Path
    world: ProcessGroup = ALONE
    workers: int = 0

    def __call__(self, measure: Measure, width: int, data: Dataset, pairs: IndexPairs) -> Rows:
        """Return up to `width` numbers that `measure` gives for each pair, the rest NaN."""
        data = data.without_depth()
        path, stored = self.world.on_main(lambda: self._stored(f"{measure.__name__} {width}", data, pairs))
        if stored is not None:
            return stored
        rank, size = self.world.rank, self.world.size
        rows = np.empty((len(pairs), width), np.float32)
        for first, share in enumerate(
            self.world.on_all(lambda: self._measure(measure, width, data, pairs[rank::size]))
        ):
            rows[first::size] = share
        self.world.on_main(lambda: self._write(path, rows))
        return rows

    def _measure(self, measure: Measure, width: int, data: Dataset, pairs: IndexPairs) -> Rows:
        def work(number: int) -> Sequence[float] | np.ndarray:
            with suppress(DataError):  # of an unreadable frame, which the loader reports or skips
                return measure(*map(data.read, pairs[number]))
            return ()

        rows = np.full((len(pairs), width), np.nan, np.float32)
        found = ordered_parallel_map(work, len(pairs), self.workers, lambda i: f"frame '{data.names[pairs[i][0]]}'")
        for row, values in zip(rows, found, strict=True):
            row[: len(values)] = values
        return rows

    def _stored(self, what: str, data: Dataset, pairs: IndexPairs) -> tuple[Path, Rows | None]:
        """Return the file for these measurements, and what it holds: its name is a hash of files, cameras and poses."""
        digest = hashlib.sha256(f"{VERSION} {what} {dataset_fingerprint(data)} {data.version}".encode())
        digest.update(np.asarray(pairs).tobytes())
        for frames in videos(data).values():
            for path in (path for index in frames for name, path in data.files(index).items() if name == "image"):
                with suppress(OSError):
                    digest.update(f"{path.absolute()} {file_version(path)}".encode(errors="surrogateescape"))
            for index in (frames[0], frames[-1]):
                with suppress(DataError):
                    sample = data.read(index)
                    digest.update(repr((sample.image.shape, sample.intrinsics, sample.pose)).encode())
        file = self.folder / "measured" / f"{digest.hexdigest()[:32]}.npy"
        with suppress(DataError):
            rows = read_array(file, "NPY", 2**40)
            return file, rows if rows.dtype == np.float32 and len(rows) == len(pairs) else None
        return file, None

    def _write(self, file: Path, rows: Rows) -> None:
        if self.folder.is_dir():  # `--overfit` writes nothing
            atomic_io.make_folder(file.parent)
            atomic_io.atomic_write(file, lambda out: np.save(out, rows, allow_pickle=False))
