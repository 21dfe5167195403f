"""The images of an export: files, folders, archives, globs and lists become items with the names of their outputs."""

import csv
import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from densevit.data.index.matching import IMAGE_SUFFIXES
from densevit.data.index.paths import walk
from densevit.data.io.images import OTHER_IMAGE_SUFFIXES
from densevit.data.io.readers import Rgb
from densevit.data.io.tar import TarMember, list_members
from densevit.data.io.video import CAMERA as CAMERA_INPUT
from densevit.data.io.video import VIDEO_SUFFIXES, natural_order
from densevit.data.recordings.distortion import PinholeView
from densevit.errors import DataError
from densevit.inference.camera import Intrinsics, Lens, pinhole_view
from densevit.structures import Size
from densevit.utils.atomic_io import sha256
from densevit.utils.json_files import read_text

ARCHIVE_SUFFIXES = frozenset({".tar"})
LIST_SUFFIXES = frozenset({".txt", ".csv"})
COMPRESSED = re.compile(r"\.(tgz|tar\.(gz|bz2|xz|zst))$", re.IGNORECASE)  # refused with a reason, not taken as images
GLOB_CHARACTERS = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Item:
    """One image to export."""

    source: Path  # absolute; of a file in an archive, the archive's path and then its own
    name: str  # of its outputs below the output folder, without format suffix; "/" between folders
    member: TarMember | None = None  # where it lies in an archive
    intrinsics: Intrinsics | Lens | None = None
    camera_source: str = ""  # where its camera was taken from

    def file(self) -> AbstractContextManager[Path]:
        """Return a path that decoders can open."""
        return nullcontext(self.source) if self.member is None else self.member.file()

    def view(self, size: Size) -> PinholeView | None:
        """Return how the image is undistorted; None where no distortion is known."""
        return pinhole_view(self.intrinsics, size)

    def undistorted(self, image: Rgb) -> Rgb:
        """Return the image as a pinhole camera would have taken it."""
        view = self.view((image.shape[0], image.shape[1]))
        return image if view is None else view.image(image)

    def digest(self) -> str:
        """Return the sha256 of its bytes."""
        with self.file() as path:
            return sha256(path)


@dataclass(frozen=True)
class Selection:
    """The images to export.

    Attributes:
        unsupported: by suffix, how many videos and images of other formats were left out of folders and globs.
    """

    items: Sequence[Item]
    unsupported: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Expanded:
    """The images that one input stands for."""

    root: Path  # names are relative to the deepest folder that holds every root
    images: Sequence[Path | TarMember]
    unsupported: Counter[str] = field(default_factory=Counter)


def paths_of(inputs: Any) -> list[str | os.PathLike[str]]:
    """Return one input, or several, as a list. Raises DataError: something that is no path."""
    one = isinstance(inputs, str | os.PathLike) or not isinstance(inputs, Iterable)
    paths = [inputs] if one else list(inputs)
    if wrong := [type(path).__name__ for path in paths if not isinstance(path, str | os.PathLike)]:
        raise DataError(
            f"inputs are paths, got {wrong[0]}; a `Predictor` takes arrays and PIL images: predictor(image)."
        )
    return paths


def find_items(inputs: Sequence[str | os.PathLike[str]], suffixes: Sequence[str], output: Path) -> Selection:
    """Resolve inputs in their order; an image that is given twice counts once.

    A name is the image's path below the deepest folder that holds everything given, without its suffix; two images that
    would share an output (`a.jpg` and `a.png`) keep theirs and become `a.jpg` and `a.png` plus the format's.
    `suffixes`: of the formats that will be written; `output`: where to; folders and globs leave out what lies in it.
    Raises DataError: an input does not exist, a folder or glob holds no image, or the output folder is also an input.
    """
    output = absolute(output)
    expanded = [expand(os.fspath(path), output) for path in inputs]
    if not expanded:
        raise DataError("no images given: name files, folders, globs or a .txt or .csv list.")
    base = Path(os.path.commonpath([f.root for f in expanded]))
    sources = dict.fromkeys(image for f in expanded for image in f.images)
    items = name_items([(source, named_after(source).relative_to(base).as_posix()) for source in sources], suffixes)
    return Selection(items, sum((f.unsupported for f in expanded), Counter()))


def named_after(source: Path | TarMember) -> Path:
    """Return the path that a source's outputs are named for; an archive counts as a folder of its name."""
    return source.archive.with_suffix("") / source.name if isinstance(source, TarMember) else source


def expand(text: str, output: Path) -> Expanded:
    path = absolute(text)
    if path.is_dir():
        if path == output:
            raise DataError(f"{path} is both input and output; choose another output, {path / 'depth'} say.")
        # Also behind links, but for those to a folder that holds them.
        files = (Path(top) / name for top, names in sorted(walk(path)) for name in sorted(names))
        return images_among(files, path, output, f"{path}: holds no image")
    if path.is_file():
        return expand_list(path) if path.suffix.lower() in LIST_SUFFIXES else Expanded(path.parent, images_of(path))
    if GLOB_CHARACTERS.search(text):
        return expand_glob(text, output)
    if path.exists():
        raise DataError(f"{text}: is neither file nor folder; write a list of images into a .txt file.")
    raise DataError(f"{text}: no such file or folder.")


def expand_glob(pattern: str, output: Path) -> Expanded:
    segments = absolute(pattern).parts
    fixed = next(i for i, segment in enumerate(segments) if GLOB_CHARACTERS.search(segment))
    paths = map(absolute, sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207  Path.glob refuses absolute ones
    return images_among(paths, Path(*segments[:fixed]), output, f"{pattern}: matches no image")


def expand_list(path: Path) -> Expanded:
    """Return one path a line, or a CSV with a column `image`; relative ones start at the list's folder."""
    paths = [absolute(path.parent / entry) for entry in list_entries(path)]
    if not paths:
        raise no_image(f"{path}: lists no image")
    images = [image for each in paths for image in images_of(each)]
    return Expanded(Path(os.path.commonpath([each.parent for each in paths])), images)


def list_entries(path: Path) -> list[str]:
    lines = read_text(path, "the list of images").splitlines()
    if path.suffix.lower() == ".txt":
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    rows = csv.DictReader(lines, strict=True)
    try:
        if "image" not in (rows.fieldnames or ()):
            raise DataError(f"{path}: an image list in CSV needs a column 'image'; it has {rows.fieldnames}.")
        return [row["image"] for row in rows if row["image"]]
    except csv.Error as error:
        location = f"{path}:{rows.line_num + 1}"
        raise DataError(f"{location}: is no CSV from here on ({error}); look for a stray quote.") from None


def images_among(paths: Iterable[Path], root: Path, output: Path, complaint: str) -> Expanded:
    def wanted(path: Path) -> bool:
        # A dangling link or a FIFO is an image that fails, not one left out without a word.
        return not path.name.startswith(".") and not path.is_relative_to(output) and not path.is_dir()

    files = [(path, path.suffix.lower()) for path in paths if wanted(path)]
    images = [i for path, suffix in files if suffix in IMAGE_SUFFIXES | ARCHIVE_SUFFIXES for i in images_of(path)]
    unsupported = Counter(suffix for _, suffix in files if suffix in OTHER_IMAGE_SUFFIXES | VIDEO_SUFFIXES)
    if not images:
        raise no_image(complaint, unsupported)
    return Expanded(root, images, unsupported)


def images_of(path: Path) -> Sequence[Path | TarMember]:
    """Return a file, or the images in an archive. Raises DataError: a bad archive, or one without images."""
    if path.suffix.lower() not in ARCHIVE_SUFFIXES and not COMPRESSED.search(path.name):
        return [path]
    inside = [member for member in list_members(path) if PurePosixPath(member.name).suffix.lower() in IMAGE_SUFFIXES]
    # WebDataset stores a sample's maps beside its image: `0001.jpg` and `0001.depth.png`.
    images = [member for member in inside if PurePosixPath(member.name).name.count(".") == 1]
    if not images:
        raise no_image(f"{path}: holds no image")
    return images


def name_items(images: Sequence[tuple[Path | TarMember, str]], suffixes: Sequence[str]) -> list[Item]:
    """Drop image suffixes, except from names whose outputs would be the same file."""
    full = [name for _, name in images]
    names = [without_suffix(name) for name in full]
    while clashing := set(clashes(names, suffixes)) - {i for i, name in enumerate(names) if name == full[i]}:
        names = [full[i] if i in clashing else name for i, name in enumerate(names)]
    return [
        Item(source.path, name, source) if isinstance(source, TarMember) else Item(source, name)
        for (source, _), name in zip(images, names, strict=True)
    ]


def without_suffix(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + (Path(file).stem if Path(file).suffix.lower() in IMAGE_SUFFIXES else file)


def clashes(names: Sequence[str], suffixes: Sequence[str]) -> Iterator[int]:
    count = Counter(name + suffix for name in names for suffix in suffixes)
    return (i for i, name in enumerate(names) if any(count[name + suffix] > 1 for suffix in suffixes))


def no_image(complaint: str, unsupported: Mapping[str, int] | None = None) -> DataError:
    others = f"; {list_unsupported(unsupported)}" if unsupported else ""
    return DataError(f"{complaint} ({', '.join(sorted(IMAGE_SUFFIXES))}){others}.")


def list_unsupported(unsupported: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count} {suffix}" for suffix, count in sorted(unsupported.items()))
    return f"left out, not read as images: {counts}"


def absolute(path: str | os.PathLike[str]) -> Path:
    # Links stay as they are written: a folder of links keeps the structure that its owner gave it.
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100  Path.absolute keeps `..`


def is_video(source: str) -> bool:
    """Return whether an input can only be a video: a camera, a video file, a folder of them."""
    path = Path(source)
    if source.startswith(CAMERA_INPUT) or path.suffix.lower() in VIDEO_SUFFIXES:
        return True
    return (
        path.is_dir() and bool(videos_in(path)) and not any(p.suffix.lower() in IMAGE_SUFFIXES for p in path.iterdir())
    )


def videos_in(folder: Path) -> list[Path]:
    inside = (p for p in folder.iterdir() if p.suffix.lower() in VIDEO_SUFFIXES and not p.name.startswith("."))
    return sorted(inside, key=natural_order)
