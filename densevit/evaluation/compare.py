"""Two evaluations of the same images: is one system better, or could other images have turned it around?"""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

from densevit.errors import DataError
from densevit.evaluation.bootstrap import DRAWS, FEWEST, intervals, scenes_of
from densevit.evaluation.depth.extra_metrics import is_larger_better
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.protocol import COUNTS
from densevit.reporting.tables import Interval

Rows = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Difference:
    """B - A of one metric, image by image.

    Attributes:
        a, b: means over the images that both have.
        mean: of the differences.
        interval: 95% bootstrap interval of it; None of fewer than FEWEST images.
        scenes: the same with whole scenes drawn; None where the names tell of fewer than FEWEST.
    """

    metric: str
    a: float
    b: float
    mean: float
    interval: Interval | None
    scenes: Interval | None

    @property
    def better(self) -> str | None:
        """A, B, or None where an interval holds 0: other images could have said the opposite."""
        found = [spread for spread in (self.interval, self.scenes) if spread is not None]
        if not found or any(low <= 0 <= high for low, high in found):
            return None
        return "B" if (self.mean > 0) == is_larger_better(self.metric) else "A"


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    scenes: how many folders the names of the images tell of.
    only_a, only_b: names that the other does not have; they are left out.
    """

    protocol: str
    images: int
    scenes: int
    differences: tuple[Difference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def compare(a: Path, b: Path, metrics: tuple[str, ...] = ()) -> Comparison:
    """Compares two folders that `eval-depth --output` wrote.

    Args:
        metrics: to look at; none means all that both have.

    Raises:
        DataError: a file is missing or damaged, the protocols differ, no image is in both, no such metric.
    """
    protocols = read_protocol(a), read_protocol(b)
    if protocols[0] != protocols[1]:
        raise DataError(
            f"{a} is scored by '{protocols[0]}' and {b} by '{protocols[1]}': their numbers mean different things. "
            "Score both by one protocol."
        )
    rows_a, rows_b = read_rows(a), read_rows(b)
    both = sorted(rows_a.keys() & rows_b.keys())
    if not both:
        raise DataError(f"{a} and {b} have no scored image in common.")
    shared = dict.fromkeys(metric for name in both for metric in rows_a[name] if metric in rows_b[name])
    known = [metric for metric in shared if metric not in COUNTS]
    unknown = [metric for metric in metrics if metric not in known]
    if unknown:
        raise DataError(f"no metric {', '.join(unknown)} in both; there are {', '.join(known)}.")
    chosen = metrics or tuple(known)
    differences = tuple(_difference(metric, rows_a, rows_b, both) for metric in chosen)
    only_a, only_b = (tuple(sorted(one.keys() - other.keys())) for one, other in ((rows_a, rows_b), (rows_b, rows_a)))
    return Comparison(protocols[0], len(both), len(set(scenes_of(both).values())), differences, only_a, only_b)


def _difference(metric: str, a: Rows, b: Rows, names: list[str]) -> Difference:
    names = [name for name in names if metric in a[name] and metric in b[name]]
    pairs = [(name, {metric: b[name][metric] - a[name][metric]}) for name in names]
    scenes = scenes_of(names)
    by_scene = intervals(pairs, [metric], scenes) if len(set(scenes.values())) > 1 else {}
    mean_a, mean_b = (fsum(rows[name][metric] for name in names) / len(names) for rows in (a, b))
    mean = fsum(row[metric] for _, row in pairs) / len(names)
    return Difference(metric, mean_a, mean_b, mean, intervals(pairs, [metric]).get(metric), by_scene.get(metric))


def table(found: Comparison) -> str:
    """The comparison in words and numbers, for a terminal."""
    lines = [
        f"{found.images:,} images under {found.protocol}; B - A, with the 95% interval of {DRAWS:,} redrawn sets:",
        "",
    ]
    lines.append(f"{'':14}{'A':>10}{'B':>10}{'B - A':>11}   {'over images':22}{'over scenes':22}")
    for row in found.differences:
        spans = "".join(f"{_span(spread):22}" for spread in (row.interval, row.scenes))
        lines.append(f"{row.metric:14}{row.a:10.4f}{row.b:10.4f}{row.mean:+11.5f}   {spans}{_verdict(row)}")
    lines += ["", sentence(found)]
    if 1 < found.scenes < FEWEST:
        lines.append(
            f"Of other scenes this tells nothing: they are {found.scenes}, and {FEWEST} are the fewest that can."
        )
    for label, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            lines.append(f"only in {label} and left out: {len(names):,} images, {', '.join(names[:5])}")
    return "\n".join(lines)


def sentence(found: Comparison) -> str:
    """What the nine metrics say together; each interval alone is right 19 times in 20."""
    nine = [row for row in found.differences if row.metric in METRICS] or list(found.differences)
    for one, other in (("A", "B"), ("B", "A")):
        wins = [row.metric for row in nine if row.better == one]
        if wins and not any(row.better == other for row in nine):
            return f"{one} is better in {len(wins)} of {len(nine)} metrics ({', '.join(wins)}); in none is {other}."
    if any(row.better for row in nine):
        return "Each is better in some metrics: " + ", ".join(
            f"{row.metric} {row.better}" for row in nine if row.better
        )
    if all(row.interval is None for row in nine):
        few = f"{found.images} images tell too little of others"
        return f"No difference is shown: {few}; {FEWEST} are the fewest that can."
    return "No difference is shown: every interval holds 0."


def _verdict(row: Difference) -> str:
    return "no difference shown" if row.better is None else f"{row.better} is better"


def _span(spread: Interval | None) -> str:
    return "-" if spread is None else f"{spread[0]:+.5f} to {spread[1]:+.5f}"


def read_protocol(folder: Path) -> str:
    """Name and range of what a folder was scored by."""
    protocol = _read_summary(folder)["protocol"]
    return f"{protocol['name']} {protocol['range']}"


def read_rows(folder: Path) -> Rows:
    """Name -> scores, of the scored images of a `per_image.csv`.

    Raises:
        DataError: it is missing, damaged, or not as long as `metrics.json` says.
    """
    path = folder / "per_image.csv"
    rows: Rows = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                if None in record or None in record.values():
                    raise ValueError(f"a row of {record['name']!r} is not as long as the first line")
                if (name := record.pop("name")) in rows:
                    raise ValueError(f"{name!r} stands in it twice")
                rows[name] = {metric: float(cell) for metric, cell in record.items() if cell}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); `eval-depth --output` writes it.") from None
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(f"{path}: is not what `eval-depth --output` writes ({error}).") from None
    images = _read_summary(folder)["counts"]["images"]
    if len(rows) != images:
        raise DataError(f"{path}: holds {len(rows):,} images, where metrics.json says {images:,}: a part is gone.")
    return {name: row for name, row in rows.items() if row}


def _read_summary(folder: Path) -> Mapping[str, Any]:
    """What `metrics.json` says, as far as it is needed here."""
    path = folder / "metrics.json"
    try:
        tree: Mapping[str, Any] = json.loads(path.read_text())
        if isinstance(tree, dict) and "task" in tree:
            raise DataError(f"{path}: scores of {tree['task']}; those of `eval-depth --output` can be compared.")
        return {
            "protocol": {key: tree["protocol"][key] for key in ("name", "range")},
            "counts": {"images": int(tree["counts"]["images"])},
        }
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); `eval-depth --output` writes it.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is not what `eval-depth --output` writes ({error}).") from None
