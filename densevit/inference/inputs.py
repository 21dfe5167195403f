"""What to export and under which names: files, folders, globs and lists become items with outputs of their own."""

import csv
import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from densevit.errors import DataError

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp"})
LISTS = frozenset({".txt", ".csv"})
MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Item:
    """One image to export."""

    source: Path  # absolute
    name: str  # of its outputs below the output folder, without format suffix; "/" between folders


@dataclass(frozen=True)
class Found:
    """What one input stands for."""

    root: Path  # names are relative to the deepest folder that holds every root
    images: Sequence[Path]


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
    return named([(source, source.relative_to(base).as_posix()) for source in sources], suffixes)


def find(text: str, output: Path) -> Found:
    path = absolute(text)
    if path.is_dir():
        return below(path, output)
    if path.is_file():
        return listed(path) if path.suffix.lower() in LISTS else Found(path.parent, [path])
    if MAGIC.search(text):
        return matching(text, output)
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
    images = [absolute(path.parent / entry) for entry in entries(path)] or nothing(f"{path}: lists no image")
    return Found(Path(os.path.commonpath([image.parent for image in images])), images)


def entries(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: an image list is UTF-8 text ({error.reason} at byte {error.start}).") from None
    if path.suffix.lower() == ".txt":
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    rows = csv.DictReader(lines)
    if "image" not in (rows.fieldnames or ()):
        raise DataError(f"{path}: an image list in CSV needs a column 'image'; it has {rows.fieldnames}.")
    return [row["image"] for row in rows if row["image"]]


def images_among(paths: Iterable[Path], output: Path) -> list[Path]:
    def wanted(path: Path) -> bool:
        hidden = path.name.startswith(".")
        return path.suffix.lower() in IMAGES and not hidden and not path.is_relative_to(output) and path.is_file()

    return [path for path in paths if wanted(path)]


def named(images: Sequence[tuple[Path, str]], suffixes: Sequence[str]) -> list[Item]:
    """Drops image suffixes, except from names whose outputs would meet."""
    full = [name for _, name in images]
    names = [strip(name) for name in full]
    while clashing := set(clashes(names, suffixes)) - {i for i, name in enumerate(names) if name == full[i]}:
        names = [full[i] if i in clashing else name for i, name in enumerate(names)]
    return [Item(source, name) for (source, _), name in zip(images, names, strict=True)]


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
