"""Atomic writing: every file that densevit writes is whole or absent, and a failure leaves the file before it."""

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from densevit.errors import StorageError
from densevit.utils.process import process_exists

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SUFFIX = ".densevit-tmp"
SET_ASIDE = ".densevit-old"
TEMPORARY = re.compile(rf"\.(?P<name>.+)\.(?P<pid>\d+)(\.[0-9a-f]+)?(?P<suffix>{SUFFIX}|{SET_ASIDE})")


class _Hashing(io.RawIOBase):
    """A binary file that hashes what passes through."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data).cast("B")
        self.digest.update(view)
        self.file.write(view)
        return len(view)


def atomic_write(path: str | Path, write: Callable[[BinaryIO], object]) -> str:
    """Write a file through `write(file)`; it appears under its name only when complete and on disk.

    The file handed to `write` is append-only (no seeking), so that it can be hashed on the way. Raises StorageError if
    the disk is full, the folder is missing or read-only. Returns the sha256 of the content.
    """
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        hashing = _Hashing(file)
        write(cast(BinaryIO, hashing))
    return hashing.digest.hexdigest()


def write_bytes(path: str | Path, content: "ReadableBuffer") -> str:
    """Write what is encoded already; see `atomic_write`."""
    return atomic_write(path, lambda file: file.write(content))


def write_text(path: str | Path, text: str) -> str:
    """Write UTF-8; bytes of file names that are not UTF-8 become escapes such as `\\udce9`."""
    return write_bytes(path, text.encode(errors="backslashreplace"))


def make_folder(path: str | Path) -> Path:
    """Return the folder, made with its parents where it is not there. Raises StorageError if it cannot be made."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: cannot be made ({error.strerror}).") from error
    return Path(path)


def check_can_create(path: str | Path) -> None:
    """Say whether `make_folder` would fail, before hours of work rather than after them; make nothing. Raises
    StorageError if it would."""
    parent, unfit = nearest_folder(Path(path))
    if unfit:
        raise StorageError(f"{path}: cannot be made ({parent} is {unfit}).")


def nearest_folder(folder: Path) -> tuple[Path, Literal["", "no folder", "read-only"]]:
    """Return the nearest existing parent of a folder (or itself), and why nothing can be written there. Raises
    StorageError if no disk can hold it: a name is too long, say."""
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if _is_there(path))
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error.strerror}).") from None
    if not nearest.is_dir():
        return nearest, "no folder"
    return nearest, "" if os.access(nearest, os.W_OK | os.X_OK) else "read-only"


def _is_there(path: Path) -> bool:
    try:
        path.lstat()  # `Path.exists` hides other errors from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def user_cache(kind: str) -> Path | None:
    """Return the user's folder of such files: below `DENSEVIT_CACHE`, else `$XDG_CACHE_HOME/densevit`; None if it is
    off."""
    setting = os.environ.get("DENSEVIT_CACHE", "")
    if setting.lower() in ("off", "0", "no", "false"):
        return None
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return (Path(setting).expanduser() if setting else home / "densevit") / kind


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, for writers that insist on a name; moved into place if the block
    succeeds."""
    path = Path(path)
    temporary = None
    try:
        temporary = _temporary(path)
        temporary.touch(exist_ok=False)
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)
    except OSError as error:
        raise StorageError(_explain(path, error)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `path`, renamed into place if the block succeeds. `replace`: a folder that stands
    there goes once the new one is whole; otherwise `path` must not exist."""
    path = Path(path)
    temporary = None
    try:
        temporary = _temporary(path)
        temporary.mkdir()
        yield temporary
        _fsync(temporary)
        aside = _temporary(path, SET_ASIDE) if replace and path.is_dir() else None
        if (
            aside is not None
        ):  # no folder can be renamed onto another; `remove_stale_temporaries` puts this one back, should we die here
            path.rename(aside)
        temporary.rename(path)
        _fsync(path.parent)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StorageError(_explain(path, error)) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def temporary_folder(path: str | Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`, gone at the end, for files that are to be tried before they are kept.
    Raises StorageError if it cannot be made, or filled."""
    folder = _temporary(Path(path))
    try:
        folder.mkdir()
        yield folder
    except OSError as error:
        raise StorageError(_explain(Path(path), error)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale_temporaries(folder: str | Path) -> list[Path]:
    """Remove temporaries that dead processes of this machine left in `folder`; return what it removed.

    A folder that was set aside for one that never came is put back.
    """
    removed = []
    for left in sorted(Path(folder).glob(".*.densevit-*")):
        match = TEMPORARY.fullmatch(left.name)
        if match is None or process_exists(int(match["pid"])):
            continue
        original = left.with_name(match["name"])
        if match["suffix"] == SET_ASIDE and not original.exists():
            with suppress(FileNotFoundError):  # another process was first
                left.rename(original)
        else:
            remove(left)
            removed.append(left)
    return removed


def remove(path: Path) -> None:
    """Delete a file or folder as far as it can be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def require_free_space(folder: Path, size: int) -> None:
    """Raise StorageError if the disk has not enough free space; known before half of it is written."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise StorageError(
            f"{folder}: no room for {size:,} bytes ({free:,} bytes free); what stands there is untouched."
        )


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _temporary(path: Path, suffix: str = SUFFIX) -> Path:
    # The end of the name is random, so that two writers of one path do not collide.
    # Names hold 255 bytes; cut at 128, which may split a character, to leave room for the rest.
    name = os.fsencode(path.name)[:128].decode(errors="ignore")  # a name need not be UTF-8
    return path.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}{suffix}")


def _fsync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _explain(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(path.parent).free
        return f"{path}: no room ({error.strerror}; {free:,} bytes free); what stood there is untouched."
    if not path.parent.is_dir():
        return f"{path}: its folder does not exist."
    return f"{path}: cannot be written ({error.strerror or error})."
