"""Recorded sha256 sums of a data set's files, in the form that `sha256sum` writes and checks.

They are the only thing that finds a flipped bit in the middle of a JPEG: every decoder takes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from densevit.data.validation.issues import Finding
from densevit.data.validation.sample_stats import Seen
from densevit.errors import DataError
from densevit.utils.atomic_io import write_text


def read_sums(path: Path) -> dict[str, str]:
    """Path -> sum.

    Raises:
        DataError: naming the line that is none.
    """
    sums: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the sums cannot be read ({error}).") from error
    for number, line in enumerate(lines, 1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise DataError(f"{path}:{number}: expected SHA256  PATH, got {line[:80]!r}.")
        sums[name] = digest
    return sums


def write_sums(path: Path, seen: Sequence[Seen]) -> None:
    sums = {str(one.paths[role]): digest for one in seen for role, digest in one.sums.items()}
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def changed(split: str, names: Sequence[str], seen: Sequence[Seen], recorded: Mapping[str, str]) -> Iterator[Finding]:
    """Files whose bytes are not the recorded ones; files that were never recorded are left alone."""
    for index, one in enumerate(seen):
        for role, digest in one.sums.items():
            path = str(one.paths[role])
            if recorded.get(path, digest) != digest:
                reason = f"sha256 {digest[:12]}..., recorded {recorded[path][:12]}..."
                yield Finding("changed", split, reason, path, names[index], index)
