"""Which files of two folders belong together, by name.

1. `images` and `depths` may be folders: files match when their paths in them are equal up to the suffix.
2. Where that leaves some alone, words that tell only what a file is (rgb, depth, ...) are dropped from the names:
   `kitchen/rgb_00045.jpg` and `kitchen/sync_depth_00045.png` are both `kitchen/00045`.
3. They may be patterns: files match when the wildcards stand for the same. With `*/rgb/*.jpg` and `*/d/*.png`,
   `a/rgb/1.jpg` and `a/d/1.png` are both `a/1`.

Names are compared in Unicode NFC: a Mac may write an umlaut as two signs where others write one (`to_nfc`).
"""

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path, PurePosixPath

from densevit.data.index.paths import MissingItem, first_five, record_missing
from densevit.data.io.images import SUFFIX_FORMATS
from densevit.errors import DataError

ROLES = frozenset(
    {"rgb", "image", "img", "color", "colors", "colour", "colours", "photo"}
    | {"depth", "depths", "sync", "gt", "groundtruth", "truth"}
    | {"label", "labels", "mask", "seg", "semantic"}
    | {"normal", "normals"}
    | {"pred", "prediction"}
)

IMAGE_SUFFIXES = frozenset(SUFFIX_FORMATS)
DEPTH_SUFFIXES = frozenset([".png", ".tif", ".tiff", ".npy", ".npz", ".pfm", ".exr", ".h5", ".hdf5"])
LABEL_SUFFIXES = frozenset([".png", ".tif", ".tiff", ".bmp", ".npy"])
NORMAL_SUFFIXES = frozenset([".png", ".npy", ".exr"])


Around = tuple[str, ...]
"""A path by its key: what stands before and behind it, one object for many paths; or the whole path alone."""


def around_of(key: str, path: str) -> Around:
    return tuple(path.rsplit(key, 1))


def path_of(key: str, around: Sequence[str]) -> str:
    return key.join(around) if len(around) == 2 else around[0]


class _Arounds(dict[str, Around | None]):
    """By suffix what stands around the keys of a folder; None for a suffix that is not wanted."""

    def __init__(self, before: str, suffixes: frozenset[str]) -> None:
        self.before, self.suffixes = before, suffixes

    def __missing__(self, suffix: str) -> Around | None:
        self[suffix] = (self.before, suffix) if suffix.lower() in self.suffixes else None
        return self[suffix]


def find_by_key(root: Path, folder: str, suffixes: frozenset[str], walk: "Walk") -> dict[str, Around]:
    """Return the paths of a folder or pattern under `root`, by key (rules 1 and 3), sorted. Raises DataError if the
    folder is missing or holds files of other formats only, a link leads out of `root`, a name is not UTF-8, or two
    files have one key."""
    pattern = _pattern(to_nfc(folder)) if is_pattern(folder) else None
    base = root / folder if pattern is None else root
    if not base.is_dir():
        raise DataError(f"{base}: no such folder.{_existing_folders(root)}")
    by_key: dict[str, Around] = {}
    others: dict[str, list[str]] = {}
    before = os.path.join(base, "")  # noqa: PTH118 (with the separator)
    begin, arounds, shared = len(before), _Arounds(before, suffixes), dict[Around, Around]()
    special = pattern is not None or os.sep != "/"
    for path in walk.files(str(base)):
        dot = path.rfind(".", begin)  # strings: a million paths would take seconds as Path
        around = arounds[path[dot:]]
        if around is None:
            continue
        key = path[begin:dot]
        if special or not key.isascii():
            key = _text(key if pattern is None else path[begin:])
            if pattern is not None:
                hit = pattern.fullmatch(key)
                if hit is None:
                    continue
                key = "/".join(group.strip("/") for group in hit.groups() if group)
            around = around_of(key, path)
            around = shared.setdefault(around, around)
        if by_key.setdefault(key, around) is not around:
            others.setdefault(key, [path_of(key, by_key[key])]).append(path)
    if pattern is None and arounds and not by_key:
        came = ", ".join(sorted(suffix for suffix in arounds if suffix.startswith("."))) or "none"
        fits = ", ".join(sorted(suffixes))
        raise DataError(f"{base}: none of the files can be read; suffixes are {came}, and can be {fits}.")
    twice = [f"{key}: {', '.join(paths)}" for key, paths in others.items()]
    if twice and not record_missing(_duplicates(others)):
        raise DataError(f"{base}: {len(twice):,} names stand for several files each:{first_five(twice)}")
    keys = sorted(by_key)
    return by_key if keys == list(by_key) else {key: by_key[key] for key in keys}


def _existing_folders(root: Path) -> str:
    """Return the folders of a root, for the error that one is missing."""
    if not root.is_dir():
        return ""
    there = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if there:
        return f" In {root} there are {', '.join(there[:8])}; options say which holds what."
    return f" There are no folders in {root}: the root is the one above `images`."


def _text(path: str) -> str:
    """Return a relative path as text that every report, table and log can hold. Raises DataError if its bytes are no
    UTF-8."""
    if any("\ud800" <= letter <= "\udfff" for letter in path):
        raise DataError(f"{path!a}: the name is not UTF-8; rename the file.")
    return to_nfc(path.replace(os.sep, "/"))


def to_nfc(text: str) -> str:
    """Return the text in Unicode's form NFC: a letter with its accent is one character."""
    return unicodedata.normalize("NFC", text)


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def exists(root: Path, folder: str) -> bool:
    """Return whether the folder exists; a pattern always does."""
    return is_pattern(folder) or (root / folder).is_dir()


def strip_role_words(keys: Collection[str]) -> dict[str, str]:
    """Map each key to the one without role words (rule 2). Raises DataError: two keys become one."""
    bare: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        bare[_without_roles(key)].append(key)
    twice = [f"{name}: {', '.join(owners)}" for name, owners in bare.items() if len(owners) > 1]
    if twice and not record_missing(_duplicates(bare)):
        raise DataError(f"names that differ in words such as rgb or depth only are ambiguous:{first_five(twice)}")
    return {owners[0]: name for name, owners in bare.items()}


def match_names(keys: Collection[str], others: Collection[str]) -> dict[str, str]:
    """Map each key to the matching one of the others, for keys that have one (rules 1 and 2)."""
    exact = set(keys).intersection(others)
    if len(exact) in (len(keys), len(others)):
        return {key: key for key in keys if key in exact}
    by_name = {name: other for other, name in strip_role_words(others).items()}
    return {key: by_name[name] for key, name in strip_role_words(keys).items() if name in by_name}


class Walk:
    """All files below folders, hidden ones left out; links are followed as long as they stay inside `root`.

    `folders` are those that it went through; `broken` are links to nothing, which count as files, so that they are
    reported as missing instead of being left out.
    """

    def __init__(self, root: Path, *, allow_outside: bool) -> None:
        self.root, self.allow_outside = root, allow_outside
        self.folders: list[str] = []
        self.broken: list[str] = []

    def files(self, folder: str) -> Iterator[str]:
        """Yield the paths of the files, sorted in each folder. Raises DataError if a link leads out, or in a circle."""
        self.folders.append(folder)
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=attrgetter("name"))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_file(follow_symlinks=False):
                yield entry.path
            elif entry.is_symlink() and self._is_broken(Path(entry), Path(folder)):
                self.broken.append(entry.path)
                yield entry.path
            elif entry.is_file():
                yield entry.path
            elif entry.is_dir():
                yield from self.files(entry.path)

    def _is_broken(self, link: Path, folder: Path) -> bool:
        if not link.exists():  # or in a circle of links
            return True
        target, root = link.resolve(), self.root
        if not self.allow_outside and not target.is_relative_to(root.resolve()):
            raise DataError(
                f"{link}: links to {target}, outside {root}. If that is meant, set `allow_outside_root: true`."
            )
        if folder.resolve().is_relative_to(target):
            raise DataError(f"{link}: links to a folder that holds it.")
        return False


def _duplicates(owners: Mapping[str, Sequence[object]]) -> list[MissingItem]:
    """Return the files beside the first of a name."""
    return [
        MissingItem("duplicate_name", str(other), f"stands for '{name}', as {first} does")
        for name, (first, *others) in owners.items()
        for other in others
    ]


def _pattern(glob: str) -> re.Pattern[str]:
    """Return a glob as an expression with one group per wildcard; `**/` is any number of folders."""
    pieces = re.split(r"(\*\*/|\*|\?|\[[^\]]+\])", glob)
    groups = {"**/": "((?:[^/]+/)*)", "*": "([^/]*)", "?": "([^/])"}
    return re.compile("".join(groups.get(p) or (f"({p})" if p.startswith("[") else re.escape(p)) for p in pieces))


def _without_roles(key: str) -> str:
    path = PurePosixPath(key)
    words = [word for word in re.split(r"[_\-. ]", path.name) if word.lower() not in ROLES]
    return path.with_name("_".join(words)).as_posix() if any(words) else key
