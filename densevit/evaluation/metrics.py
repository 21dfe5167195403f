"""The metrics of every task: what each means, and in which direction it improves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
