"""What to export and under which names: files, folders, archives, globs and lists become items with own outputs."""

import csv
import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from densevit.data.io.tar import Member, members
from densevit.errors import DataError

ARCHIVES = frozenset({".tar"})
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp"})
LISTS = frozenset({".txt", ".csv"})
COMPRESSED = re.compile(r"\.(tgz|tar\.(gz|bz2|xz|zst))$", re.IGNORECASE)  # archives that are told so, not as images
MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Item:
    """One image to export."""

    source: Path  # absolute; of a file in an archive, the archive's path and then its own
    name: str  # of its outputs below the output folder, without format suffix; "/" between folders
    member: Member | None = None  # where it lies in an archive

    def file(self) -> AbstractContextManager[Path]:
        """A path that decoders can open."""
        return nullcontext(self.source) if self.member is None else self.member.file()


@dataclass(frozen=True)
class Found:
    """What one input stands for."""

    root: Path  # names are relative to the deepest folder that holds every root
    images: Sequence[Path | Member]


def find_items(inputs: Sequence[str | os.PathLike[str]], suffixes: Sequence[str], output: Path) -> list[Item]:
    """Resolves inputs in their order; an image that is given twice counts once.

    A name is the image's path below the deepest folder that holds everything given, without its suffix; two images that
    would share an output (`a.jpg` and `a.png`) keep theirs and become `a.jpg` and `a.png` plus the format's.

    Args:
        suffixes: of the formats that will be written.
        output: where to; folders and globs leave out what lies in it.

    Raises:
        DataError: an input does not exist, a folder or glob holds no image, or the output folder is also an input.
    """
    output = absolute(output)
    found = [find(os.fspath(given), output) for given in inputs]
    if not found:
        raise DataError("no images given: name files, folders, globs or a .txt or .csv list.")
    base = Path(os.path.commonpath([f.root for f in found]))
    sources = dict.fromkeys(image for f in found for image in f.images)
    return named([(source, shown(source).relative_to(base).as_posix()) for source in sources], suffixes)


def shown(source: Path | Member) -> Path:
    """The path that a source's outputs are named for; an archive counts as a folder of its name."""
    return source.archive.with_suffix("") / source.name if isinstance(source, Member) else source


def find(text: str, output: Path) -> Found:
    path = absolute(text)
    if path.is_dir():
        return below(path, output)
    if path.is_file():
        return listed(path) if path.suffix.lower() in LISTS else Found(path.parent, opened(path))
    if MAGIC.search(text):
        return matching(text, output)
    if path.exists():
        raise DataError(f"{text}: is neither file nor folder; write a list of images into a .txt file.")
    raise DataError(f"{text}: no such file or folder.")


def below(folder: Path, output: Path) -> Found:
    if folder == output:
        raise DataError(f"{folder} is both input and output; choose another output, {folder / 'depth'} say.")
    inside = (Path(top) / name for top, _, names in sorted(os.walk(folder)) for name in sorted(names))
    return Found(folder, images_among(inside, output) or nothing(f"{folder}: holds no image"))


def matching(pattern: str, output: Path) -> Found:
    parts = absolute(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if MAGIC.search(part))
    paths = map(absolute, sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207  Path.glob refuses absolute ones
    return Found(Path(*parts[:fixed]), images_among(paths, output) or nothing(f"{pattern}: matches no image"))


def listed(path: Path) -> Found:
    """One path a line, or a CSV with a column `image`; relative ones start at the list's folder."""
    paths = [absolute(path.parent / entry) for entry in entries(path)] or nothing(f"{path}: lists no image")
    images = [image for each in paths for image in opened(each)]
    return Found(Path(os.path.commonpath([each.parent for each in paths])), images)


def entries(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: an image list is UTF-8 text ({error.reason} at byte {error.start}).") from None
    if path.suffix.lower() == ".txt":
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    rows = csv.DictReader(lines, strict=True)
    try:
        if "image" not in (rows.fieldnames or ()):
            raise DataError(f"{path}: an image list in CSV needs a column 'image'; it has {rows.fieldnames}.")
        return [row["image"] for row in rows if row["image"]]
    except csv.Error as error:
        where = f"{path}:{rows.line_num + 1}"
        raise DataError(f"{where}: is no CSV from here on ({error}); look for a stray quote.") from None


def images_among(paths: Iterable[Path], output: Path) -> list[Path | Member]:
    def wanted(path: Path) -> bool:
        kind, hidden = path.suffix.lower(), path.name.startswith(".")
        there = path.is_file() or not path.exists()  # a link to nothing is an image that fails, not one that is not
        return kind in IMAGES | ARCHIVES and not hidden and not path.is_relative_to(output) and there

    return [image for path in paths if wanted(path) for image in opened(path)]


def opened(path: Path) -> Sequence[Path | Member]:
    """A file, or the images in an archive.

    Raises:
        DataError: a bad archive, or one without images.
    """
    if path.suffix.lower() not in ARCHIVES and not COMPRESSED.search(path.name):
        return [path]
    inside = [member for member in members(path) if PurePosixPath(member.name).suffix.lower() in IMAGES]
    # WebDataset stores a sample's maps beside its picture: `0001.jpg` and `0001.depth.png`.
    pictures = [member for member in inside if PurePosixPath(member.name).name.count(".") == 1]
    return pictures or nothing(f"{path}: holds no image")


def named(images: Sequence[tuple[Path | Member, str]], suffixes: Sequence[str]) -> list[Item]:
    """Drops image suffixes, except from names whose outputs would meet."""
    full = [name for _, name in images]
    names = [strip(name) for name in full]
    while clashing := set(clashes(names, suffixes)) - {i for i, name in enumerate(names) if name == full[i]}:
        names = [full[i] if i in clashing else name for i, name in enumerate(names)]
    return [item(source, name) for (source, _), name in zip(images, names, strict=True)]


def item(source: Path | Member, name: str) -> Item:
    return Item(source.path, name, source) if isinstance(source, Member) else Item(source, name)


def strip(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + (Path(file).stem if Path(file).suffix.lower() in IMAGES else file)


def clashes(names: Sequence[str], suffixes: Sequence[str]) -> Iterator[int]:
    count = Counter(name + suffix for name in names for suffix in suffixes)
    return (i for i, name in enumerate(names) if any(count[name + suffix] > 1 for suffix in suffixes))


def nothing(message: str) -> list[Path]:
    raise DataError(f"{message} ({', '.join(sorted(IMAGES))}).")


def absolute(path: str | os.PathLike[str]) -> Path:
    # Links stay as they are written: a folder of links keeps the structure that its owner gave it.
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100  Path.absolute keeps `..`
