"""Compares two evaluations of the same images: is one system better, and by how much?

Differences are taken image by image. One counts as shown if its 95% intervals, over images and over scenes, exclude 0
and its p-value, corrected for the number of metrics (Holm), is under 0.05.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isclose, isfinite, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from densevit.errors import DataError
from densevit.evaluation.bootstrap import DRAWS, FEWEST, Bootstrap, bootstrap_means, bootstrap_pooled, holm, scenes_of
from densevit.evaluation.depth.protocol import COUNTS
from densevit.evaluation.depth.scores import ranges_in_order
from densevit.evaluation.scores import Direction, find_metric
from densevit.evaluation.segmentation.metrics import TRUE
from densevit.evaluation.segmentation.scores import COUNTS_FILE, statistics
from densevit.reporting.html_page import write_page
from densevit.reporting.tables import Interval, name_of_cell
from densevit.structures import Row
from densevit.utils.json_files import MALFORMED, parse_json

ALPHA = 0.05
NEGLIGIBLE = 0.005  # relative difference under which it is called so, however sure it is


@dataclass(frozen=True)
class Difference:
    """B - A of one metric."""

    metric: str
    direction: Direction  # in which the metric improves
    best: float  # its value without any error
    a: float  # over the images that both have
    b: float  # over the images that both have
    difference: float  # b - a
    wins: float  # share of the images on which B is better; equal ones count half
    interval: Interval | None  # 95% bootstrap interval of the difference over images; None of fewer than FEWEST
    scenes: Interval | None  # the same with whole scenes drawn; None where the names tell of fewer than FEWEST
    # that no such difference would be there in all images, corrected for the number of metrics; the larger one of
    # images and scenes. None without interval
    p: float | None
    left_out: int = 0  # images of which a score is no finite number

    @property
    def relative(self) -> float:
        """The difference as a share of A's error, which is how far A is from the best value."""
        error = self.best - self.a
        return abs(self.difference / error) if error else float("inf") if self.difference else 0.0

    @property
    def better(self) -> str | None:
        """A, B, or None where the difference is not significant: other images could have said the opposite."""
        intervals = [interval for interval in (self.interval, self.scenes) if interval is not None]
        if self.p is None or self.p >= ALPHA or any(low <= 0 <= high for low, high in intervals):
            return None
        return "B" if (self.difference > 0) == (self.direction == "max") else "A"

    @property
    def verdict(self) -> str:
        if self.better is None:
            return "not significant"
        if self.relative < NEGLIGIBLE:
            return f"{self.better} is better, negligibly"
        return f"{self.better} is better"


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    scored_by: the protocol, or the task.
    scenes: how many folders the names of the images tell of.
    only_a, only_b: names that the other does not have; they are left out.
    warnings: what makes the scores of A and of B doubtful, as their metrics.json say; or "".
    """

    scored_by: str
    images: int
    scenes: int
    differences: tuple[Difference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[str, str] = ("", "")

    @property
    def tests(self) -> int:
        """How many metrics enough images have for a p-value."""
        return sum(row.p is not None for row in self.differences)

    def __str__(self) -> str:
        return table(self)


def compare(a: Path, b: Path, metrics: tuple[str, ...] = ()) -> Comparison:
    """Compare two folders that `eval --output` wrote. `metrics`: to look at; none means all that both have. Raises
    DataError if a file is missing or damaged, tasks, protocols, classes or ground truth differ, no image in common, no
    such metric.
    """
    kinds = scored_by(a), scored_by(b)
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{a} is scored by '{kinds[0]}' and {b} by '{kinds[1]}': their numbers mean different things. "
            "Score both by one protocol."
        )
    names_a, names_b, differences = (_segmentation if kinds[0] == "segmentation" else _depth)(a, b, metrics)
    both = names_a & names_b
    adjusted = iter(holm([row.p for row in differences if row.p is not None]))
    corrected = tuple(row if row.p is None else replace(row, p=next(adjusted)) for row in differences)
    scenes = len(set(scenes_of(both).values()))
    only_a, only_b = tuple(sorted(names_a - both)), tuple(sorted(names_b - both))
    warnings = _read_summary(a)["warning"], _read_summary(b)["warning"]
    return Comparison(kinds[0], len(both), scenes, corrected, only_a, only_b, warnings)


Differences = tuple[set[str], set[str], list[Difference]]
"""Names of A's images, names of B's, and the differences with their p-values not yet corrected."""


def _depth(a: Path, b: Path, metrics: Sequence[str]) -> Differences:
    """Return the differences of means over images."""
    rows_a, rows_b = read_rows(a), read_rows(b)
    both = _common(a, b, *({name: row.get("pixels") for name, row in rows.items()} for rows in (rows_a, rows_b)))
    changes = [(name, {m: rows_b[name][m] - x for m, x in rows_a[name].items() if m in rows_b[name]}) for name in both]
    shared = dict.fromkeys(metric for _, row in changes for metric, change in row.items() if isfinite(change))
    common = [m for m in ranges_in_order(shared) if m not in COUNTS and find_metric("depth", m).better]
    selected = _selected(metrics, common) if metrics else [m for m in common if not _holds_all(m, rows_a, rows_b, both)]
    over_images, over_scenes = bootstrap_means(changes, selected), bootstrap_means(changes, selected, scenes_of(both))
    differences = []
    for metric in selected:
        values = {name: row[metric] for name, row in changes if isfinite(row.get(metric, nan))}
        mean_a, mean_b = (fsum(rows[name][metric] for name in values) / len(values) for rows in (rows_a, rows_b))
        mean = fsum(values.values()) / len(values)
        redrawn = over_images.get(metric), over_scenes.get(metric)
        difference = _difference("depth", metric, mean_a, mean_b, mean, list(values.values()), *redrawn)
        left_out = sum(metric in row for _, row in changes) - len(values)
        differences.append(replace(difference, left_out=left_out))
    return set(rows_a), set(rows_b), differences


def _holds_all(metric: str, rows_a: Mapping[str, Row], rows_b: Mapping[str, Row], both: Sequence[str]) -> bool:
    """Return whether a metric is of a range that all pixels lie in, so that it says what its base metric says."""
    base, at, _ = metric.partition("@")
    rows = [rows[name] for name in both for rows in (rows_a, rows_b)]
    return bool(at) and all(base in row and isclose(row.get(metric, nan), row[base], rel_tol=1e-9) for row in rows)


def _segmentation(a: Path, b: Path, metrics: Sequence[str]) -> Differences:
    """Return the differences of scores of pooled pixels; images are redrawn before they are pooled."""
    (counts_a, classes_a), (counts_b, classes_b) = read_counts(a), read_counts(b)
    if classes_a != classes_b:
        raise DataError(f"{a} and {b} have different classes: {len(classes_a)} and {len(classes_b)}, or other names.")
    areas = ({name: count[0, TRUE].tolist() for name, count in counts.items()} for counts in (counts_a, counts_b))
    both = _common(a, b, *areas)
    parts = min(next(iter(counts.values())).shape[0] for counts in (counts_a, counts_b))  # 1 without boundaries
    stacked = np.stack([[counts[name][:parts] for counts in (counts_a, counts_b)] for name in both])

    def scores(pooled: Int64[np.ndarray, "*n 2 parts 3 k"], system: int) -> dict[str, np.ndarray]:
        results = statistics(pooled[..., system, :, :, :])
        return {name: values for name, values in results.items() if name != "iou"}

    def difference(pooled: Int64[np.ndarray, "*n 2 parts 3 k"]) -> dict[str, np.ndarray]:
        return {name: values - scores(pooled, 0)[name] for name, values in scores(pooled, 1).items()}

    pooled, per_image = stacked.sum(0), difference(stacked)
    selected = _selected(metrics, list(per_image))
    scenes = scenes_of(both)
    over_images = bootstrap_pooled(stacked, difference, both)
    over_scenes = bootstrap_pooled(stacked, difference, [scenes[name] for name in both])
    differences = []
    for metric in selected:
        score_a, score_b = (float(scores(pooled, system)[metric]) for system in (0, 1))
        values = [float(value) for value in per_image[metric] if not isnan(value)]
        redrawn = over_images.get(metric), over_scenes.get(metric)
        differences.append(_difference("segmentation", metric, score_a, score_b, score_b - score_a, values, *redrawn))
    return set(counts_a), set(counts_b), differences


def _difference(
    task: str,
    metric: str,
    a: float,
    b: float,
    difference: float,
    per_image: Sequence[float],
    images: Bootstrap | None,
    scenes: Bootstrap | None,
) -> Difference:
    definition = find_metric(task, metric)
    direction = definition.better or "min"
    sign = 1 if direction == "max" else -1
    wins = sum(0.5 if value == 0 else float(sign * value > 0) for value in per_image) / len(per_image)
    redrawn = [bootstrap for bootstrap in (images, scenes) if bootstrap is not None]
    return Difference(
        metric,
        direction,
        definition.best,
        a,
        b,
        difference,
        wins,
        None if images is None else images.interval(),
        None if scenes is None else scenes.interval(),
        max((bootstrap.p_value(difference) for bootstrap in redrawn), default=None),
    )


def _common(a: Path, b: Path, truth_a: Mapping[str, Any], truth_b: Mapping[str, Any]) -> list[str]:
    """Return the names that both have. Raises DataError: none, or names that stand for other images.

    Args:
        truth_a, truth_b: how many pixels of ground truth each image has.
    """
    both = sorted(truth_a.keys() & truth_b.keys())
    if not both:
        raise DataError(f"{a} and {b} have no scored image in common.")
    if other := [name for name in both if truth_a[name] != truth_b[name]]:
        raise DataError(
            f"{a} and {b} were scored on other data: {len(other):,} of {len(both):,} images have the same name and "
            f"other ground truth, {other[0]} first."
        )
    return both


def _selected(metrics: Sequence[str], common: list[str]) -> list[str]:
    if unknown := [metric for metric in metrics if metric not in common]:
        raise DataError(
            f"no metric {', '.join(unknown)} of known direction in both (one of a plug-in needs --plugins); there are "
            f"{', '.join(common)}."
        )
    return list(metrics or common)


def table(test: Comparison) -> str:
    """Return the comparison in words and numbers, for a terminal."""
    lines = [
        f"{test.images:,} images under {test.scored_by}; 95% intervals of B - A from {DRAWS:,} bootstrap resamples, "
        f"p corrected for {test.tests} metrics (Holm):",
        "",
    ]
    lines.append(f"{'':14}{'A':>10}{'B':>10}{'B - A':>11}{'relative change':>17}{'B wins':>8}{'p':>8}   "
                 f"{'over images':22} {'over scenes':22} ")  # fmt: skip
    for row in test.differences:
        spans = "".join(f"{_interval(interval):22} " for interval in (row.interval, row.scenes))
        lines.append(
            f"{row.metric:14}{row.a:10.4f}{row.b:10.4f}{row.difference:+11.5f}{row.relative:>17.1%}{row.wins:>8.0%}"
            f"{_p_text(row.p):>8}   {spans}{row.verdict}"
        )
    return "\n".join([*lines, "", sentence(test), *notes(test)])


def sentence(test: Comparison) -> str:
    """Return what the metrics say together."""
    rows = test.differences
    parts = []
    for system in ("A", "B"):
        for size, shown in (("", [r for r in rows if r.relative >= NEGLIGIBLE]),
                            (f" by under {NEGLIGIBLE:.1%}", [r for r in rows if r.relative < NEGLIGIBLE])):  # fmt: skip
            if names := [row.metric for row in shown if row.better == system]:
                parts.append(f"{system} is better{size} in {len(names)} of {len(rows)} metrics ({', '.join(names)})")
    if parts:
        return "; ".join(parts) + "."
    if all(row.interval is None for row in rows):
        return f"No test of significance: it needs at least {FEWEST} images, and there are {test.images}."
    return "No difference is significant."


def notes(test: Comparison) -> list[str]:
    """Return what a reader should know beside the numbers."""
    lines = [f"warning: {label}: {text}" for label, text in zip("AB", test.warnings, strict=True) if text]
    if 1 < test.scenes < FEWEST:
        lines.append(f"This says nothing about other scenes: it needs at least {FEWEST}, and there are {test.scenes}.")
    for row in test.differences:
        if row.left_out:
            of = f"{row.left_out:,} of {test.images:,} images"
            lines.append(f"Left out of {row.metric}: {of}, where A or B has no finite score")
    for label, names in (("A", test.only_a), ("B", test.only_b)):
        if names:
            more = " ..." if len(names) > 5 else ""
            lines.append(f"Left out, as only {label} has them: {len(names):,} images, {', '.join(names[:5])}{more}")
    return lines


def write_html(path: Path, test: Comparison, a: Path, b: Path) -> Path:
    """Write the comparison as a page. Raises StorageError if it cannot be written."""
    return write_page(
        path,
        "comparison.html",
        title=f"A: {a.name}, B: {b.name}",
        subtitle=sentence(test),
        comparison=test,
        whole=[row for row in test.differences if "@" not in row.metric],
        binned=[row for row in test.differences if "@" in row.metric and row.difference],
        folders={"A": a, "B": b},
        interval=_interval,
        p_text=_p_text,
        notes=notes(test),
    )


def _p_text(p: float | None) -> str:
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval[0]:+.5f} to {interval[1]:+.5f}"


def scored_by(folder: Path) -> str:
    """Return what the numbers of a folder mean: name and range of the protocol, or the task."""
    summary = _read_summary(folder)
    return summary.get("task") or "{name} {range}".format(**summary["protocol"])


def read_rows(folder: Path) -> dict[str, Row]:
    """Map each name to the scores of the scored images of a `per_image.csv`. Raises DataError if it is missing,
    damaged, or not as long as `metrics.json` says."""
    path = folder / "per_image.csv"
    rows: dict[str, Row] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                if None in record or None in record.values():
                    raise ValueError(f"a row of {record['name']!r} is not as long as the first line")
                if (name := name_of_cell(record.pop("name"))) in rows:
                    raise ValueError(f"{name!r} stands in it twice")
                rows[name] = {name_of_cell(metric): float(cell) for metric, cell in record.items() if cell}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); `eval --output` writes it.") from None
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(f"{path}: is not what `eval --output` writes ({error}).") from None
    images = _read_summary(folder)["images"]
    if len(rows) != images:
        raise DataError(f"{path}: holds {len(rows):,} images, where metrics.json says {images:,}: a part is gone.")
    return {name: row for name, row in rows.items() if row}


def read_counts(folder: Path) -> tuple[dict[str, Int64[np.ndarray, "parts 3 k"]], tuple[str, ...]]:
    """Map each name to the pixel counts of each class, and the classes, as `eval --output` keeps them. Raises DataError
    if the file is missing or damaged, or not as long as `metrics.json` says."""
    path = folder / COUNTS_FILE
    try:
        with np.load(path, allow_pickle=False) as file:
            names, classes, counts = file["names"].tolist(), tuple(file["classes"].tolist()), file["counts"]
        if counts.shape[0] != len(names) or counts.shape[2:] != (3, len(classes)):
            raise ValueError(f"counts of shape {counts.shape}")
    except OSError as error:
        reason = error.strerror or "damaged"
        raise DataError(f"{path}: cannot be read ({reason}); `eval --output` writes it.") from None
    except Exception as error:  # zipfile and numpy raise many
        raise DataError(f"{path}: is not what `eval --output` writes ({error}).") from None
    scored = _read_summary(folder)["scored"]
    if len(names) != scored:
        raise DataError(f"{path}: holds {len(names):,} images, where metrics.json says {scored:,}: a part is gone.")
    return dict(zip(names, counts, strict=True)), classes


def _read_summary(folder: Path) -> Mapping[str, Any]:
    """Return what `metrics.json` says, as far as it is needed here."""
    path = folder / "metrics.json"
    try:
        tree: Mapping[str, Any] = parse_json(path.read_text(), path)
        counted = tree["counts"]
        task = tree.get("task", "depth" if "range" in tree.get("protocol", ()) else "normals")  # older files have none
        if task not in ("depth", "segmentation"):
            raise DataError(f"{path}: scores of {task}; depth and segmentation can be compared.")
        counts: dict[str, Any] = {key: int(counted[key]) for key in ("images", "scored")}
        counts["warning"] = str(tree.get("source", {}).get("warning", ""))
        if task == "depth":
            return {"protocol": {key: tree["protocol"][key] for key in ("name", "range")}, **counts}
        return {"task": "segmentation", **counts}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); `eval --output` writes it.") from None
    except DataError:
        raise
    except MALFORMED as error:
        raise DataError(f"{path}: is not what `eval --output` writes ({error!s:.300}).") from None
