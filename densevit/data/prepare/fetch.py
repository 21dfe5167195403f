"""Fetches a large file over HTTP, keeping only what its checksum confirms, and unpacks it to where readers look."""

import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, NamedTuple

from densevit.data.index.paths import check_inside
from densevit.errors import DataError, StorageError
from densevit.utils.atomic_io import atomic_write, make_folder, require_free_space
from densevit.utils.network import is_reachable
from densevit.utils.output import tqdm

CHUNK = 1 << 20  # bytes
TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # in a row without one
CONNECT = 5.0  # seconds to reach the server


def fetch(url: str, target: Path, checksum: str) -> Path:
    """Download into `TARGET.part`, which takes the target's name when it is whole and its checksum is right.

    A broken connection is taken up again where it broke, in this call and in later ones, if the server serves ranges.
    `checksum`: as `md5:...`, of any algorithm of hashlib; of a file that is there already, too. Raises DataError if the
    server cannot be reached or refuses, the connection keeps breaking, or the content is another. Raises StorageError
    if the disk is full or read-only. Returns the target.
    """
    if target.exists():
        if digest(target, checksum) != checksum:
            raise DataError(f"{target}: its checksum is not {checksum}; remove it to fetch it anew from {url}.")
        return target
    make_folder(target.parent)
    if not is_reachable(url, CONNECT):
        raise DataError(f"no connection to {url}; put that file into {target.parent} and call again.")
    part = target.with_name(f"{target.name}.part")
    _download(url, part)
    if (found := digest(part, checksum)) != checksum:
        part.unlink()
        raise DataError(f"{url}: what came has the checksum {found}, expected {checksum}; it was removed, try again.")
    return part.replace(target)


def digest(path: Path, like: str) -> str:
    """Return the checksum of a file, by the algorithm of another checksum.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile() as file:
    ...     digest(Path(file.name), "md5:...")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _download(url: str, part: Path) -> None:
    """Raise DataError, StorageError: see `fetch`; what came so far is kept."""
    failures = 0
    with tqdm(desc=part.stem, unit="B", unit_scale=True, disable=None) as bar:
        while True:
            before = size_of(part)
            try:
                if _receive(url, part, bar):
                    return
                why = "it ended early"
            except urllib.error.HTTPError as error:
                raise DataError(f"{url}: the server says {error.code} {error.reason}.") from None
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
            failures = failures + 1 if size_of(part) <= before else 1
            if failures >= TRIES:
                came = f"{size_of(part):,} bytes"
                raise DataError(f"{url}: the connection broke after {came} ({why}); a later call continues from there.")


def _receive(url: str, part: Path, bar: Any) -> bool:
    """Append what one connection brings; return whether the file is whole."""
    have = size_of(part)
    request = urllib.request.Request(url, headers={"User-Agent": "densevit", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416 or not have:  # not satisfiable: nothing is left to send, or the file became shorter
            raise
        if error.headers.get("Content-Range", "").endswith(f"/{have}"):
            return True
        part.unlink()
        return False
    with answer:
        if have and answer.status != 206:
            have = 0  # the server knows no ranges and sends all of it
        length = answer.headers.get("Content-Length")
        if length is not None:
            _stored(part, lambda: require_free_space(part.parent, int(length)))
        bar.total, bar.n = (None if length is None else have + int(length)), have
        with _stored(part, lambda: part.open("r+b" if part.exists() else "wb")) as file:
            file.truncate(have)
            file.seek(have)
            while chunk := answer.read(CHUNK):
                _stored(part, partial(file.write, chunk))
                bar.update(len(chunk))
    return length is None or size_of(part) == have + int(length)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _stored(part: Path, work: Callable[[], Any]) -> Any:
    """Run what touches the disk. Raises StorageError if the disk is full or read-only; what came so far is kept."""
    try:
        return work()
    except OSError as error:
        raise StorageError(
            f"{part}: cannot be written ({os.strerror(error.errno or 0)}); a later call continues."
        ) from None


# Data set -> archive -> folder below the root that it is unpacked into.
ARCHIVES: Mapping[str, Mapping[str, str]] = {
    "ade20k": {"ADEChallengeData2016.zip": ""},
    "cityscapes": {
        "leftImg8bit_trainvaltest.zip": "",
        "gtFine_trainvaltest.zip": "",
        "leftImg8bit_trainextra.zip": "",
        "gtCoarse.zip": "",
    },
    "voc": {"VOCtrainval_11-May-2012.tar": "", "benchmark.tgz": ""},
    "pascal_context": {"VOCtrainval_03-May-2010.tar": "", "trainval.tar.gz": ""},
    "coco_stuff": {
        "train2017.zip": "images",
        "val2017.zip": "images",
        "stuffthingmaps_trainval2017.zip": "annotations",
    },
}


class ArchiveMember(NamedTuple):
    """A file of an archive."""

    name: str
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack_all(name: str, downloads: Path, root: Path) -> list[str]:
    """Unpack those archives of a data set that are there. Raises DataError if none is there, or one is damaged.
    Returns a line on each archive."""
    found = {archive: folder for archive, folder in ARCHIVES[name].items() if (downloads / archive).is_file()}
    if not found:
        raise DataError(f"{downloads}: none of {', '.join(ARCHIVES[name])}.")
    lines = [f"{archive}: {unpack(downloads / archive, root / folder):,} files" for archive, folder in found.items()]
    return lines + [f"{archive}: not there" for archive in ARCHIVES[name] if archive not in found]


def unpack(archive: Path, folder: Path) -> int:
    """Write the files of an archive that are not there yet, so that an interrupted run goes on. Raises DataError if it
    is damaged, or a name in it leads out of the folder. Returns how many files it has."""
    count = 0
    reader = _zip if archive.suffix == ".zip" else _tar
    try:
        for member in tqdm(reader(archive), desc=archive.name, unit="files", disable=None):
            target = folder / check_inside([member.name.replace("\\", "/")], archive)[0]
            count += 1
            if target.is_file() and target.stat().st_size == member.size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(member, target)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise DataError(f"{archive}: is damaged or not complete ({error}). Fetch it again.") from error
    return count


def _zip(path: Path) -> Iterator[ArchiveMember]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield ArchiveMember(info.filename, info.file_size, partial(archive.open, info))


def _tar(path: Path) -> Iterator[ArchiveMember]:
    with tarfile.open(path) as archive:
        for info in archive:
            if info.isfile():
                yield ArchiveMember(info.name, info.size, partial(archive.extractfile, info))


def _copy(member: ArchiveMember, target: Path) -> None:
    source = member.open()
    assert source is not None  # as it is of links and folders
    with source:
        atomic_write(target, lambda file: copyfileobj(source, file, 1 << 20))
