"""The archives that data sets of label maps are published in, unpacked to where their readers look."""

import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from typing import IO, NamedTuple

from densevit.errors import DataError
from densevit.utils.atomic_io import atomic_write
from densevit.utils.progress import tqdm

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


class Member(NamedTuple):
    """A file of an archive."""

    name: str
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack_all(name: str, downloads: Path, root: Path) -> list[str]:
    """Unpacks those archives of a data set that are there. Raises DataError if none is there, or one is damaged.
    Returns a line on each archive."""
    found = {archive: folder for archive, folder in ARCHIVES[name].items() if (downloads / archive).is_file()}
    if not found:
        raise DataError(f"{downloads}: none of {', '.join(ARCHIVES[name])}.")
    lines = [f"{archive}: {unpack(downloads / archive, root / folder):,} files" for archive, folder in found.items()]
    return lines + [f"{archive}: not there" for archive in ARCHIVES[name] if archive not in found]


def unpack(archive: Path, folder: Path) -> int:
    """Writes the files of an archive that are not there yet, so that an interrupted run goes on. Raises DataError if it
    is damaged, or a name in it leads out of the folder. Returns how many files it has."""
    count = 0
    reader = _zip if archive.suffix == ".zip" else _tar
    with _damage_named(archive):
        for member in tqdm(reader(archive), desc=archive.name, unit="files", disable=None):
            target = folder / _safe(archive, member.name)
            count += 1
            if target.is_file() and target.stat().st_size == member.size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(member, target)
    return count


def _zip(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield Member(info.filename, info.file_size, partial(archive.open, info))


def _tar(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for info in archive:
            if info.isfile():
                yield Member(info.name, info.size, partial(archive.extractfile, info))


def _copy(member: Member, target: Path) -> None:
    source = member.open()
    assert source is not None  # as it is of links and folders
    with source:
        atomic_write(target, lambda file: copyfileobj(source, file, 1 << 20))


def _safe(archive: Path, name: str) -> Path:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"{archive}: '{name}' leads out of the folder it is unpacked into.")
    return Path(path)


@contextmanager
def _damage_named(archive: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise DataError(f"{archive}: is damaged or not complete ({error}). Fetch it again.") from error
