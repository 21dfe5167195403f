"""Scores of images by name."""

from collections.abc import Iterable, Sequence

from densevit.errors import DataError
from densevit.structures import Row


def split_scored_and_skipped(rows: Iterable[tuple[str, Row]]) -> tuple[list[tuple[str, Row]], list[str]]:
    """The rows of images with ground truth, and the names of the others. Raises DataError if a name that comes twice
    would weigh twice."""
    found: dict[str, Row] = {}
    for name, row in rows:
        if name in found:
            raise DataError(f"{name}: comes twice in one evaluation.")
        found[name] = row
    return [(name, row) for name, row in found.items() if row], [name for name, row in found.items() if not row]


WORST = 10  # images that a report shows or names as the worst


def examples(ranked: Sequence[str]) -> dict[str, str]:
    """Label -> image of those to show: the best, the median and the worst ones, each once. `ranked`: the names, best
    first."""
    count = min(WORST, max(1, (len(ranked) - 1) // 2))
    worst = {f"worst {i + 1}" if i else "worst": name for i, name in enumerate(ranked[: -count - 1 : -1])}
    others = {"best": ranked[0], "median": ranked[len(ranked) // 2]}
    return {label: name for label, name in others.items() if name not in worst.values()} | worst
