"""The metrics of every task: what each means, and in which direction it improves."""

import re
from collections.abc import Iterable, Mapping
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


def ranges_in_order(names: Iterable[str]) -> list[str]:
    """Return the names of metrics as they come, those by ranges behind all others and from low to high."""
    return sorted(names, key=_range_of)


def _range_of(name: str) -> tuple[str, float]:
    """The unit and the lower end of `abs_rel@10-20m`."""
    begin = re.match(r"[^@]*@([\d.]+)[\d.-]*(.*)", name)
    return (begin[2], float(begin[1])) if begin else ("", 0.0)
