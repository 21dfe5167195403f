"""What reports write: rows of a table, CSV, and numbers that JSON can hold."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

Interval = tuple[float, float]
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # with the apostrophes that a name has itself, so that reading gives it back


def interval_lines(intervals: Mapping[str, Interval], names: Iterable[str], what: str, width: int) -> list[str]:
    """Return the lower and upper ends under columns of `width`, `-` where there is none; nothing where none were
    computed."""
    if not intervals:
        return []
    lower, upper = (
        "".join(f"{intervals[name][end]:{width}.4f}" if name in intervals else f"{'-':>{width}}" for name in names)
        for end in (0, 1)
    )
    return [f"{lower}  {what}, from", f"{upper}  to"]


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def rows_csv(
    what: str,
    columns: Sequence[str],
    rows: Iterable[tuple[str, Mapping[str, float | str]]],
    skipped: Iterable[str] = (),
) -> str:
    """Return a line per row, numbers in full precision; what a row does not have is empty, as all of a skipped one
    is."""
    lines = [[what, *map(plain_text, columns)]]
    lines += [[plain_text(name), *(_cell(row.get(column, "")) for column in columns)] for name, row in rows]
    return csv_text([*lines, *([plain_text(name), *([""] * len(columns))] for name in skipped)])


def confusion_csv(classes: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return True classes down, predicted ones across."""
    rows = ([plain_text(name), *row] for name, row in zip(classes, counts, strict=True))
    return csv_text([["true / predicted", *map(plain_text, columns)], *rows])


def plain_text(name: str) -> str:
    """Return the name behind an apostrophe where a spreadsheet would compute it as a formula, as `=1+1`."""
    return f"'{name}" if FORMULA.match(name) else name


def name_of_cell(cell: str) -> str:
    """Return the name that `plain_text` wrote."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def finite(row: Mapping[str, float]) -> dict[str, float | None]:
    """Return the row with None for what is not finite."""
    return {name: value if isfinite(value) else None for name, value in row.items()}


def _cell(value: float | str) -> str:
    """Return the integers without a point."""
    if isinstance(value, str):
        return plain_text(value)
    return str(int(value)) if value.is_integer() else repr(value)
