"""What is known of a dataset's files by their SHA-256: statistics of samples from earlier runs, and recorded checksums.

Statistics are cached, so that a second run only hashes the files: one file per dataset and options, below
`check-data` in the user's cache (`user_cache`); never beside the data. Checksums are in the format that
`sha256sum` writes and checks; only they reveal a flipped bit in the middle of a JPEG, which every decoder accepts.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from densevit import __version__
from densevit.data.labels.class_table import ClassTable
from densevit.data.validation.issues import Issue
from densevit.data.validation.sample_stats import InspectedSample, SampleStats
from densevit.errors import DataError, StorageError
from densevit.utils.atomic_io import user_cache, write_text
from densevit.utils.json_files import read_object, read_text

log = logging.getLogger(__name__)

SCHEMA = 8  # a new number when the statistics change their meaning


class StatsCache:
    """Sample statistics by the checksums of the sample's files."""

    def __init__(self, path: Path | None, table: ClassTable | None = None, version: str = "") -> None:
        """Open a cache file; None caches nothing.

        Args:
            table: of the classes; statistics made under another table, or another version, do not count.
            version: of the data set (`Dataset.version`).
        """
        self.path = path
        self.classes = version
        if table is not None:
            self.classes += repr((table.names, table.places, table.palette, table.things))
        self.stored = _read(path) if path else {}
        self.new: dict[str, Any] = {}

    def key(self, name: str, checksums: Mapping[str, str]) -> str:
        """Return empty where there are no files to identify a sample by. `name`: annotations in one file for all may
        differ where the images are equal."""
        if not checksums:
            return ""
        return hashlib.sha256(json.dumps([self.classes, name, *sorted(checksums.items())]).encode()).hexdigest()[:32]

    def get(self, key: str) -> SampleStats | None:
        try:
            return SampleStats.from_dict(self.stored[key])
        except (KeyError, TypeError):  # not there, or no longer what was written
            return None

    def put(self, key: str, stats: SampleStats) -> None:
        self.new[key] = vars(stats)

    def save(self) -> None:
        """Write the new entries; failing to write costs time only, and is logged."""
        if self.path is None or not self.new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps({**self.stored, **self.new}))
        except (OSError, StorageError) as error:
            log.warning("%s: the results cannot be cached (%s).", self.path, error)


def cache_path(spec: Mapping[str, Any]) -> Path | None:
    """Return the cache file of a dataset with these options; None if the user's cache is off."""
    folder = user_cache("check-data")
    key = json.dumps([SCHEMA, __version__, dict(spec)], sort_keys=True, default=str)
    return folder and folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except DataError:  # none yet, or damaged: then it is written again
        return {}


def read_checksums(path: Path) -> dict[str, str]:
    """Map each path to its SHA-256. Raises DataError if the file cannot be read, or a line has another format; naming
    the line."""
    checksums: dict[str, str] = {}
    for number, line in enumerate(read_text(path, "the list of checksums").splitlines(), 1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise DataError(f"{path}:{number}: expected SHA256  PATH, got {line[:80]!r}.")
        checksums[name] = digest
    return checksums


def write_checksums(path: Path, samples: Sequence[InspectedSample]) -> None:
    digests = {str(sample.paths[role]): digest for sample in samples for role, digest in sample.checksums.items()}
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in digests.items()))


def compare_checksums(
    split: str, names: Sequence[str], samples: Sequence[InspectedSample], recorded: Mapping[str, str]
) -> Iterator[Issue]:
    """Yield the files whose bytes are not the recorded ones; files without a record are left alone."""
    for index, sample in enumerate(samples):
        for role, digest in sample.checksums.items():
            path = str(sample.paths[role])
            if recorded.get(path, digest) != digest:
                reason = f"sha256 {digest[:12]}..., recorded {recorded[path][:12]}..."
                yield Issue("checksum_mismatch", split, reason, path, names[index], index)
