"""Paths of a data set: inside their root, and there. Whole lists are checked at opening, before any training."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from densevit.errors import DataError

log = logging.getLogger(__name__)

Subset = Literal["full", "available"]
"""What to do when listed files are missing: refuse, or go on with the others and say how many."""

T = TypeVar("T")


@dataclass(frozen=True)
class MissingItem:
    """Something that a data set should have and has not, or has twice."""

    kind: Literal["missing", "unpaired", "left_out", "duplicate_name", "no_truth"]
    where: str  # a path or a name
    reason: str


_notebook: ContextVar[list[MissingItem] | None] = ContextVar("notebook", default=None)


@contextmanager
def collect_missing() -> Iterator[list[MissingItem]]:
    """Data sets that open inside take what is there and note what is not, where else they would refuse."""
    notes: list[MissingItem] = []
    token = _notebook.set(notes)
    try:
        yield notes
    finally:
        _notebook.reset(token)


def note(lacks: Iterable[MissingItem], subset: Subset = "full") -> bool:
    """Notes what is lacking, if somebody is `collect_missing`; if not, it is the caller's to refuse.

    Args:
        subset: under `available` the user knows, and things are left out rather than missing.
    """
    notes = _notebook.get()
    if notes is None:
        return False
    notes += lacks if subset == "full" else [replace(lack, kind="left_out") for lack in lacks]
    return True


class Listing:
    """Answers `path in listing` by listing each folder once: 50,000 single look-ups take minutes on a network disk.

    Links to nothing are not in it.
    """

    def __init__(self) -> None:
        self._folders: dict[str, frozenset[str]] = {}

    def __contains__(self, path: Path) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = self._names(folder)
        return name in self._folders[folder]

    @staticmethod
    def _names(folder: str) -> frozenset[str]:
        try:
            with os.scandir(folder or ".") as entries:
                return frozenset(e.name for e in entries if not e.is_symlink() or Path(e).exists())
        except OSError:
            return frozenset()


def first_five(items: Iterable[object]) -> str:
    """The beginning of a list for an error message, one a line."""
    items = list(items)
    more = [f"... and {len(items) - 5:,} more"] if len(items) > 5 else []
    return "".join(f"\n  {item}" for item in [*items[:5], *more])


def keep_present(rows: Sequence[T], files: Callable[[T], Iterable[Path]], subset: Subset, what: str) -> list[T]:
    """The rows whose files are all there.

    Args:
        files: what one row needs.
        what: the data set and split, for the message.

    Raises:
        DataError: nothing is listed; some are missing and `subset` is full, or none is there; with the count and the
            first five.
    """
    if not rows and not note([]):
        raise DataError(f"{what}: no samples; the list of them names none.")
    listing = Listing()
    missing = {i: [f for f in files(row) if f not in listing] for i, row in enumerate(rows)}
    present = [row for i, row in enumerate(rows) if not missing[i]]
    if len(present) == len(rows):
        return present
    lost = [f for absent in missing.values() for f in absent]
    absent = [
        MissingItem("missing", str(path), "no such file, though the data set lists it") for path in dict.fromkeys(lost)
    ]
    if note(absent, subset):
        return present
    text = f"{what}: {len(rows) - len(present):,} of {len(rows):,} samples lack a file:{first_five(lost)}"
    if subset == "full" or not present:
        hint = "" if subset == "available" else "\nFor a part of the data set, set `subset: available`."
        raise DataError(text + hint)
    log.warning("%s\nGoing on with the %s that are there.", text, f"{len(present):,}")
    return present


def confine(root: Path, text: str, *, allow_outside: bool) -> Path:
    """A path that a list of files names, relative to `root`; it must not lead out, by `..`, `/` or a link.

    Raises:
        DataError: it does, or is no path at all.
    """
    if "\0" in text or "://" in text or not text.strip():
        raise DataError(f"{text!r} in {root}: expected a file path relative to the root.")
    path = root / PurePosixPath(text.replace("\\", "/"))
    try:
        led = path.resolve()
    except RuntimeError:  # of Python until 3.12; later ones find no file
        raise DataError(f"{text!r} in {root}: links that lead in a circle.") from None
    if not allow_outside and not led.is_relative_to(root.resolve()):
        meant = "If that is meant: `allow_outside_root: true` in a config, or --allow-outside-root."
        raise DataError(f"{text!r} leads out of {root}. {meant}")
    return path


def inside(names: Iterable[str], where: Path) -> list[str]:
    """Names of folders or files that a list of a published data set gives; links that its owner made are followed.

    Raises:
        DataError: one leads out of the data set, by `..` or `/`, or is no path at all.
    """
    names = list(names)
    for name in names:
        if not name or "\0" in name or name.startswith("/") or ".." in name.replace("\\", "/").split("/"):
            raise DataError(f"{where}: expected names in the data set, got {name!r}.")
    return names
