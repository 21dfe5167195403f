"""Files inside tar archives, as WebDataset packs them: found once by their headers, then read in place.

Nothing is ever unpacked under a name from the archive. An archive is a plain `.tar`; of a compressed one, no file could
be read without all before it.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from densevit.errors import DataError

CHUNK = 1 << 20  # bytes read at a time
END = 2 * tarfile.BLOCKSIZE  # bytes of zeros end an archive (POSIX.1-1988, ustar)


@dataclass(frozen=True)
class TarMember:
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
        """Raise DataError if the archive is gone, or became shorter."""
        try:
            with self.archive.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.archive}: cannot be read ({error.strerror}).") from error
        if len(data) < self.size:
            raise DataError(f"{self.path}: the archive ends in the middle of it.")
        return data

    def file(self) -> AbstractContextManager[Path]:
        """Give a path that decoders can open, with the member's bytes behind it; their errors name the member. Raises
        DataError: see `read`; and what the block raises."""
        return bytes_as_path(self.read(), self.path)


def list_members(archive: Path) -> list[TarMember]:
    """Return the files of an archive, in its order; folders are passed over. Raises DataError: missing, compressed,
    damaged or cut short; a link or a device; a name that leads out or comes twice; more behind its end."""
    members, end = [], 0
    try:
        size = archive.stat().st_size
        with archive.open("rb") as file:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for info in tar:
                    if info.size < 0:
                        raise tarfile.ReadError(f"a file of {info.size:,} bytes")
                    end = tar.offset
                    if not info.isdir():
                        members.append(_member(archive, info))
            _check_end(archive, file, end)
    except DataError:
        raise
    except (tarfile.TarError, ArithmeticError, ValueError, MemoryError) as error:
        hint = " Compressed archives cannot be read in place: gunzip it." if _compressed(archive) else ""
        raise DataError(f"{archive}: is no tar archive, or is damaged behind byte {end:,} ({error}).{hint}") from error
    except OSError as error:
        raise DataError(f"{archive}: cannot be read ({error.strerror or error}).") from error
    if end + END > size:
        raise DataError(f"{archive}: is cut short; it lacks the blocks that end an archive.")
    if len({member.name for member in members}) < len(members):
        raise DataError(f"{archive}: holds several files of one name.")
    return members


def _check_end(archive: Path, file: io.BufferedReader, end: int) -> None:
    """Only zeros may follow the last file. Raises DataError if something else follows, and would not be read."""
    file.seek(end)
    while data := file.read(CHUNK):
        if data.strip(b"\0"):
            raise DataError(
                f"{archive}: goes on behind byte {end:,}, where it seems to end: a damaged header, or two archives in "
                "one file (`tar --concatenate` joins them)."
            )


def _member(archive: Path, info: tarfile.TarInfo) -> TarMember:
    name = info.name
    folders = name.split("/")
    if not folders[0] or ".." in folders or "\0" in name or "\\" in name:
        raise DataError(f"{archive}: the name {name!r} in it leads out of it.")
    if not info.isfile() or info.issparse():
        raise DataError(f"{archive}: {name!r} is no ordinary file (a link, a device); pack what it points to.")
    path = "/".join(folder for folder in folders if folder not in ("", "."))
    return TarMember(archive, path, info.offset_data, info.size)


def _compressed(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(4)[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7", b"\x28\xb5")


@contextmanager
def bytes_as_path(data: bytes, source: Path) -> Iterator[Path]:
    """Give the bytes behind a path: in memory where the system can, else in a temporary file. Errors of the block name
    `source` in its place."""
    in_memory = hasattr(os, "memfd_create")
    with open(os.memfd_create("member"), "wb") if in_memory else NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}" if in_memory else file.name)
        try:
            yield path
        except DataError as error:
            raise DataError(str(error).replace(str(path), str(source))) from None
