"""What reports write: rows of a table, CSV, and numbers that JSON can hold."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from densevit.utils.atomic_io import make_folder, write_text

Interval = tuple[float, float]


def write_files(folder: str | Path, content: Mapping[str, str]) -> list[Path]:
    """Writes texts under their names, making the folder; returns their paths.

    Raises:
        StorageError: the folder cannot be made or written to.
    """
    folder = make_folder(folder)
    for name, text in content.items():
        write_text(folder / name, text)
    return [folder / name for name in content]


def json_text(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, indent=2, allow_nan=False) + "\n"


def interval_lines(found: Mapping[str, Interval], names: Iterable[str], what: str, width: int) -> list[str]:
    """Lower and upper ends under columns of `width`; nothing where no intervals were computed."""
    if not found:
        return []
    lower, upper = ("".join(f"{found[name][end]:{width}.4f}" for name in names) for end in (0, 1))
    return [f"{lower}  {what}, from", f"{upper}  to"]


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def finite(row: Mapping[str, float]) -> dict[str, float | None]:
    """The row with None for what is not finite."""
    return {name: value if isfinite(value) else None for name, value in row.items()}


def number(value: float) -> str:
    """In full precision, integers without a point."""
    return str(int(value)) if value.is_integer() else repr(value)


def cell(value: float) -> str:
    """A number; empty where it is not finite."""
    return number(value) if isfinite(value) else ""
