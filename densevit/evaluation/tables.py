"""What reports write: CSV, and numbers that JSON can hold."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def finite(row: Mapping[str, float]) -> dict[str, float | None]:
    """The row with None for what is not finite."""
    return {name: value if isfinite(value) else None for name, value in row.items()}


def cell(value: float) -> str:
    """A number in full precision, integers without a point; empty where it is not finite."""
    if not isfinite(value):
        return ""
    return str(int(value)) if value.is_integer() else repr(value)
