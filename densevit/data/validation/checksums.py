"""Recorded SHA-256 checksums of a dataset's files, in the format that `sha256sum` writes and checks.

Only they reveal a flipped bit in the middle of a JPEG, which every decoder accepts.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from densevit.data.validation.issues import Issue
from densevit.data.validation.sample_stats import InspectedSample
from densevit.errors import DataError
from densevit.utils.atomic_io import write_text


def read_checksums(path: Path) -> dict[str, str]:
    """Path -> SHA-256. Raises DataError if the file cannot be read, or a line has another format; naming the line."""
    checksums: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the checksums cannot be read ({error}).") from error
    for number, line in enumerate(lines, 1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise DataError(f"{path}:{number}: expected SHA256  PATH, got {line[:80]!r}.")
        checksums[name] = digest
    return checksums


def write_checksums(path: Path, samples: Sequence[InspectedSample]) -> None:
    found = {str(sample.paths[role]): digest for sample in samples for role, digest in sample.checksums.items()}
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in found.items()))


def compare_checksums(
    split: str, names: Sequence[str], samples: Sequence[InspectedSample], recorded: Mapping[str, str]
) -> Iterator[Issue]:
    """Files whose bytes are not the recorded ones; files without a record are left alone."""
    for index, sample in enumerate(samples):
        for role, digest in sample.checksums.items():
            path = str(sample.paths[role])
            if recorded.get(path, digest) != digest:
                reason = f"sha256 {digest[:12]}..., recorded {recorded[path][:12]}..."
                yield Issue("checksum_mismatch", split, reason, path, names[index], index)
