"""Files inside tar archives, as WebDataset packs them: found once by their headers, then read in place.

Nothing is ever unpacked under a name from the archive. An archive is a plain `.tar`; of a compressed one, no file could
be read without all before it.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from densevit.errors import DataError

BLOCK = 512  # bytes; headers and files begin on multiples
CHUNK = 1 << 20  # read at a time
END = 2 * BLOCK  # of zeros end an archive (POSIX.1-1988, ustar)
EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)  # of what follows


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

    @contextmanager
    def file(self) -> Iterator[Path]:
        """Give a path that decoders can open, with the member's bytes behind it; their errors name the member. Raises
        DataError: see `read`; and what the block raises."""
        with bytes_as_path(self.read()) as path:
            try:
                yield path
            except DataError as error:
                raise DataError(str(error).replace(str(path), str(self.path))) from None


def list_members(archive: Path) -> list[Member]:
    """Return the files of an archive, in its order; folders are passed over. Raises DataError: missing, compressed,
    damaged or cut short; a link or a device; a name that leads out or comes twice; more behind its end."""
    members, last = [], 0
    try:
        size = archive.stat().st_size
        with archive.open("rb", buffering=0) as file:
            for name, kind, offset, length in _headers(file):
                last = offset + -(-length // BLOCK) * BLOCK
                if kind != tarfile.DIRTYPE:
                    members.append(_member(archive, name, kind, offset, length))
            if not last and size and not _is_empty(file):
                hint = " Compressed archives cannot be read in place: gunzip it." if _compressed(archive) else ""
                raise DataError(f"{archive}: is no tar archive, or is damaged.{hint}")
            _check_end(archive, file, last)
    except OSError as error:
        raise DataError(f"{archive}: cannot be read ({error.strerror or error}).") from error
    except ValueError as error:
        raise DataError(f"{archive}: is damaged behind byte {last:,} ({error}).") from error
    if last + END > size:
        raise DataError(f"{archive}: is cut short; it lacks the blocks that end an archive.")
    if len({member.name for member in members}) < len(members):
        raise DataError(f"{archive}: holds several files of one name.")
    return members


def _headers(file: io.RawIOBase) -> Iterator[tuple[str, bytes, int, int]]:
    """Yield the name, type, offset and size of each file up to the first block that is no header: five times as quick
    as `tarfile`. POSIX.1-2001 (pax), ustar and GNU's long names."""
    position = 0
    longer: dict[bytes, bytes] = {}
    while True:
        file.seek(position)
        header = file.read(BLOCK) or b""
        checksum, digits = sum(header) - sum(header[148:156]) + 256, header[148:156].strip(b" \0").lstrip(b"0")
        if len(header) < BLOCK or digits != b"%o" % checksum:
            return
        kind, size, offset = header[156:157], _number(header[124:136]), position + BLOCK
        if kind in EXTENSIONS:
            if not 0 <= size <= CHUNK:
                raise ValueError(f"a name of {size:,} bytes")
            body = file.read(size) or b""
            if kind == tarfile.XHDTYPE:
                longer.update(_pax_records(body))
            elif kind == tarfile.GNUTYPE_LONGNAME:
                longer[b"path"] = body.partition(b"\0")[0]
        else:
            name = header[:100].partition(b"\0")[0]
            if header[257:263] == b"ustar\0" and header[345]:
                name = header[345:500].partition(b"\0")[0] + b"/" + name
            size = int(longer.get(b"size", size))
            if size < 0:
                raise ValueError(f"a file of {size:,} bytes")
            kind = tarfile.GNUTYPE_SPARSE if any(key.startswith(b"GNU.sparse") for key in longer) else kind
            yield longer.get(b"path", name).decode(errors="surrogateescape"), kind, offset, size
            longer = {}
        position = offset + -(-size // BLOCK) * BLOCK


def _number(field: bytes) -> int:
    """Return a number of a header: octal, or in base 256 where its first bit is set. Raises ValueError if it is
    neither."""
    return int.from_bytes(field[1:], "big") if field[0] & 0x80 else int(field.strip(b" \0") or b"0", 8)


def _pax_records(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of `LENGTH KEY=VALUE` lines. Raises ValueError if there are others."""
    while body.strip(b"\0"):
        digits, _, _ = body.partition(b" ")
        if not 0 < (length := int(digits)) <= len(body):
            raise ValueError(f"a record of {length:,} bytes")
        key, _, value = body[len(digits) + 1 : length - 1].partition(b"=")
        yield key, value
        body = body[length:]


def _is_empty(file: io.RawIOBase) -> bool:
    file.seek(0)
    return not (file.read(BLOCK) or b"").strip(b"\0")


def _check_end(archive: Path, file: io.RawIOBase, end: int) -> None:
    """Only zeros may follow the last file. Raises DataError if something else follows, and would not be read."""
    file.seek(end)
    while data := file.read(CHUNK):
        if data.strip(b"\0"):
            raise DataError(
                f"{archive}: goes on behind byte {end:,}, where it seems to end: a damaged header, or two archives in "
                "one file (`tar --concatenate` joins them)."
            )


def _member(archive: Path, name: str, kind: bytes, offset: int, size: int) -> Member:
    folders = name.split("/")
    if not folders[0] or ".." in folders or "\0" in name or "\\" in name:
        raise DataError(f"{archive}: the name {name!r} in it leads out of it.")
    if kind not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
        raise DataError(f"{archive}: {name!r} is no ordinary file (a link, a device); pack what it points to.")
    return Member(archive, "/".join(folder for folder in folders if folder not in ("", ".")), offset, size)


def _compressed(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(4)[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7", b"\x28\xb5")


@contextmanager
def bytes_as_path(data: bytes) -> Iterator[Path]:
    """Give the bytes behind a path: in memory where the system can, else in a temporary file."""
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
