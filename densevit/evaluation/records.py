"""The scores of images by name, as they stream in."""

from collections.abc import Iterable

from densevit.errors import DataError

Row = dict[str, float]


def split_scored_and_skipped(rows: Iterable[tuple[str, Row]]) -> tuple[list[tuple[str, Row]], list[str]]:
    """The rows of images with truth, and the names of the others.

    Raises:
        DataError: a name that comes twice would weigh twice.
    """
    found: dict[str, Row] = {}
    for name, row in rows:
        if name in found:
            raise DataError(f"{name}: comes twice in one evaluation.")
        found[name] = row
    return [(name, row) for name, row in found.items() if row], [name for name, row in found.items() if not row]
