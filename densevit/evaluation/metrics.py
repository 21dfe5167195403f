"""The metrics of every task, with the direction in which each improves; and the rows of images that hold them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from densevit.errors import DataError
from densevit.structures import Row

Direction = Literal["min", "max"]


@dataclass(frozen=True)
class Metric:
    description: str  # its definition
    better: Direction | None = "min"  # whether a smaller or a larger value is better; None where neither is


METRICS: dict[str, dict[str, Metric]] = {}
"""Task -> name -> metric."""


def register_metrics(task: str, descriptions: Mapping[str, str], better: Direction | None = "min") -> None:
    """Register metrics of a task that improve in one direction; reports and `densevit compare` go by it.

    >>> register_metrics("depth", {"p95": "95th percentile of |d - p|, in metres"})
    >>> find_metric("depth", "p95@0-5m").better
    'min'
    """
    METRICS.setdefault(task, {}).update({name: Metric(text, better) for name, text in descriptions.items()})


def find_metric(task: str, name: str) -> Metric:
    """Return a metric by its name in a report: `d1@1-2m` is d1. Of an unknown one less is better."""
    return METRICS.get(task, {}).get(name.partition("@")[0], Metric(""))


def split_scored_and_skipped(rows: Iterable[tuple[str, Row]]) -> tuple[list[tuple[str, Row]], list[str]]:
    """The rows of images with ground truth, and the names of the others. Raises DataError if a name that comes twice
    would weigh twice."""
    by_name: dict[str, Row] = {}
    for name, row in rows:
        if name in by_name:
            raise DataError(f"{name}: comes twice in one evaluation.")
        by_name[name] = row
    return [(name, row) for name, row in by_name.items() if row], [name for name, row in by_name.items() if not row]


WORST = 10  # images that a report shows or names as the worst


def examples(ranked: Sequence[str]) -> dict[str, str]:
    """Label -> image of those to show: the best, the median and the worst ones, each once. `ranked`: the names, best
    first."""
    count = min(WORST, max(1, (len(ranked) - 1) // 2))
    worst = {f"worst {i + 1}" if i else "worst": name for i, name in enumerate(ranked[: -count - 1 : -1])}
    others = {"best": ranked[0], "median": ranked[len(ranked) // 2]}
    return {label: name for label, name in others.items() if name not in worst.values()} | worst
