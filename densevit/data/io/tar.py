"""Files inside tar archives, as WebDataset packs them: found once by their headers, then read in place.

Nothing is ever unpacked under a name from the archive. An archive is a plain `.tar`; of a compressed one, no file could
be read without all before it.
"""

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import BinaryIO

from densevit.errors import DataError

BLOCK = 512  # bytes; headers and files begin on multiples
CHUNK = 1 << 20  # read at a time
END = 2 * BLOCK  # of zeros end an archive (POSIX.1-1988, ustar)


@dataclass(frozen=True)
class Member:
    """A file in an archive, by the position of its bytes."""

    archive: Path
    name: str  # as it stands in the archive, with `/`
    offset: int
    size: int

    @property
    def path(self) -> Path:
        """The path that messages name."""
        return self.archive / self.name

    def read(self) -> bytes:
        """Raises DataError if the archive is gone, or became shorter."""
        try:
            with self.archive.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.archive}: cannot be read ({error.strerror}).") from error
        if len(data) < self.size:
            raise DataError(f"{self.path}: the archive ends in the middle of it.")
        return data

    @contextmanager
    def file(self) -> Iterator[Path]:
        """A path that decoders can open, with the member's bytes behind it; their errors name the member. Raises
        DataError: see `read`; and what the block raises."""
        with bytes_as_path(self.read()) as path:
            try:
                yield path
            except DataError as error:
                raise DataError(str(error).replace(str(path), str(self.path))) from None


def list_members(archive: Path) -> list[Member]:
    """The files of an archive, in its order; folders are passed over. Raises DataError: missing, compressed, damaged or
    cut short; a link or a device; a name that leads out or comes twice; more behind its end."""
    try:
        size = archive.stat().st_size
        with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            entries = list(tar)
            found = [_member(archive, entry) for entry in entries if not entry.isdir()]
            last = max((entry.offset_data + -(-entry.size // BLOCK) * BLOCK for entry in entries), default=0)
            _check_end(archive, file, last)
    except OSError as error:
        raise DataError(f"{archive}: cannot be read ({error.strerror or error}).") from error
    except tarfile.TarError as error:
        hint = " Compressed archives cannot be read in place: gunzip it." if _compressed(archive) else ""
        raise DataError(f"{archive}: is no tar archive, or is damaged ({error}).{hint}") from error
    if last + END > size:
        raise DataError(f"{archive}: is cut short; it lacks the blocks that end an archive.")
    if len({member.name for member in found}) < len(found):
        raise DataError(f"{archive}: holds several files of one name.")
    return found


def _check_end(archive: Path, file: BinaryIO, end: int) -> None:
    """Only zeros may follow the last file. At a damaged header `tarfile` stops as if the archive ended there. Raises
    DataError if something else follows, and would not be read."""
    file.seek(end)
    while data := file.read(CHUNK):
        if data.strip(b"\0"):
            raise DataError(
                f"{archive}: goes on behind byte {end:,}, where it seems to end: a damaged header, or two archives in "
                "one file (`tar --concatenate` joins them)."
            )


def _member(archive: Path, info: tarfile.TarInfo) -> Member:
    name = PurePosixPath(info.name)
    if name.is_absolute() or ".." in name.parts or "\0" in info.name or "\\" in info.name:
        raise DataError(f"{archive}: the name {info.name!r} in it leads out of it.")
    if not info.isreg() or info.issparse():
        raise DataError(f"{archive}: {info.name!r} is no ordinary file (a link, a device); pack what it points to.")
    return Member(archive, name.as_posix(), info.offset_data, info.size)


def _compressed(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(4)[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7", b"\x28\xb5")


@contextmanager
def bytes_as_path(data: bytes) -> Iterator[Path]:
    """The bytes behind a path: in memory where the system can, else in a temporary file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("member")
        try:
            os.write(descriptor, data)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    else:
        with NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield Path(file.name)
