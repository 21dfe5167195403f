"""What the scores of every task have in common: metrics with the direction in which each improves, rows, means and
intervals, and how they are printed and written."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from densevit.errors import DataError
from densevit.evaluation.bootstrap import Bootstrap, intervals, scenes_of
from densevit.reporting.figures import Figure
from densevit.reporting.html_page import EVALUATION, interval_text, versions, write_page
from densevit.reporting.tables import Interval, finite, interval_lines, rows_csv
from densevit.structures import Row
from densevit.utils.atomic_io import make_folder, write_bytes, write_text

Direction = Literal["min", "max"]


@dataclass(frozen=True)
class Metric:
    description: str  # its definition
    better: Direction | None = "min"  # whether a smaller or a larger value is better; None where neither is
    best: float = 0.0  # the value without any error; 0 also where no value is the best, as of a gain


METRICS: dict[str, dict[str, Metric]] = {}
"""Task -> name -> metric."""


def register_metrics(
    task: str, descriptions: Mapping[str, str], better: Direction | None = "min", best: float | None = None
) -> None:
    """Register metrics of a task that improve in one direction; reports and `densevit compare` go by it.

    Args:
        best: the value without any error; default: 1 where larger is better, else 0.

    >>> register_metrics("depth", {"p95": "95th percentile of |d - p|, in metres"})
    >>> find_metric("depth", "p95@0-5m").better
    'min'
    """
    best = float(better == "max") if best is None else best
    METRICS.setdefault(task, {}).update({name: Metric(text, better, best) for name, text in descriptions.items()})


def find_metric(task: str, name: str) -> Metric:
    """Return a metric by its name in a report: `d1@1-2m` is d1. Of an unknown one neither is better."""
    return METRICS.get(task, {}).get(name.partition("@")[0], Metric("", None))


def split_scored_and_skipped(rows: Iterable[tuple[str, Row]]) -> tuple[list[tuple[str, Row]], list[str]]:
    """Return the rows of images with ground truth, and the names of the others. Raises DataError if a name that comes
    twice would weigh twice."""
    by_name: dict[str, Row] = {}
    for name, row in rows:
        if name in by_name:
            raise DataError(f"{name}: comes twice in one evaluation.")
        by_name[name] = row
    return [(name, row) for name, row in by_name.items() if row], [name for name, row in by_name.items() if not row]


WORST = 10  # images that a report shows or names as the worst


def examples(ranked: Sequence[str]) -> dict[str, str]:
    """Return label -> image of those to show: the best, the median and the worst ones, each once. `ranked`: the names,
    best first."""
    count = min(WORST, max(1, (len(ranked) - 1) // 2))
    worst = {f"worst {i + 1}" if i else "worst": name for i, name in enumerate(ranked[: -count - 1 : -1])}
    others = {"best": ranked[0], "median": ranked[len(ranked) // 2]}
    return {label: name for label, name in others.items() if name not in worst.values()} | worst


SCHEMA = 1  # of metrics.json; a new number when a key changes its meaning

Cards = list[tuple[str, str, str]]
"""The numbers to see first: name, value, note."""


class Scores(ABC):
    """The scores of one set of predictions for a data set."""

    task: ClassVar[str]  # as `densevit eval --task` names it
    ranking: ClassVar[str]  # the metric by which images are ranked for a report
    width: ClassVar[int] = 16  # characters of a column of the printed table
    resampled = True  # whether the rows are what intervals are drawn from
    rows: Sequence[tuple[str, Row]]  # name and scores of every image that was scored, in the order they came
    mean: Row  # metric -> value over the data set
    skipped: Sequence[str]  # names of the images without ground truth that counts
    counts: Mapping[str, int]  # the numbers of images, of those scored, and what else was counted

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """95% bootstrap interval of each mean with images as the sample; none for few images (bootstrap.FEWEST)."""
        return intervals(self.rows, self.mean) if self.resampled else {}

    @cached_property
    def scene_intervals(self) -> Mapping[str, Interval]:
        """The same with whole scenes as the sample, which are wider where images of a scene are alike."""
        scenes = scenes_of(name for name, _ in self.rows)
        return intervals(self.rows, self.mean, scenes) if self.resampled else {}

    def ranked(self) -> list[str]:
        """Return the names of the images, the best first."""
        sign = -1 if self.direction(self.ranking) == "max" else 1
        return [name for name, _ in sorted(self.rows, key=lambda item: sign * item[1][self.ranking])]

    def examples(self) -> dict[str, str]:
        """Return label -> name of the best, the median and the worst images."""
        return examples(self.ranked())

    def per_class(self) -> Mapping[str, Row]:
        """Return the scores of each class; empty for tasks without classes."""
        return {}

    @property
    def name(self) -> str:
        """Of the protocol, where there is one."""
        return ""

    @property
    def protocol_text(self) -> str:
        """The protocol in words."""
        return ""

    def direction(self, metric: str) -> Direction | None:
        """Return whether a smaller or a larger value is better; None where neither is."""
        return find_metric(self.task, metric).better

    def formula(self, metric: str) -> str:
        """Return the definition of a metric in words."""
        return find_metric(self.task, metric).description

    @abstractmethod
    def summary_sentence(self) -> str:
        """Return in a sentence how many images were scored and left out."""

    @abstractmethod
    def cards(self) -> Cards:
        """Return the numbers that a page shows first."""

    def columns(self) -> Sequence[str]:
        """Return the metrics that are columns of the printed table."""
        return list(self.mean)

    def details(self) -> list[str]:
        """Return further lines of the printed table."""
        return [""]

    def entries(self) -> dict[str, Any]:
        """Return what metrics.json has for this task alone."""
        return {}

    def files(self) -> dict[str, str | bytes]:
        """Return the files of a report by name, besides metrics.json and report.html."""
        return {"per_image.csv": rows_csv("name", list(self.mean), self.rows, self.skipped)}

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        """Return the values of the page's template. `baseline`: the scores of the best constant map."""
        means = {"model": self.mean} | ({"constant map": baseline} if baseline else {})
        each = {name: ends for name, ends in self._named_intervals().items() if ends}
        metrics = [
            (
                f"{metric} {ARROWS[self.direction(metric)]}".rstrip(),
                [f"{mean[metric]:.4f}" if metric in mean else "–" for mean in means.values()]
                + [interval_text(ends.get(metric)) for ends in each.values()],
                self.formula(metric),
            )
            for metric in self.page_metrics()
        ]
        return {"columns": [*means, *each], "metrics": metrics, "samples": figures}

    def page_metrics(self) -> Sequence[str]:
        """Return the metrics that a page lists."""
        return list(self.mean)

    def table(self) -> str:
        """Return the scores with their intervals, for a terminal."""
        columns = self.columns()
        lines = [self.protocol_text, ""] if self.protocol_text else []
        lines.append("".join(f"{name:>{self.width}}" for name in columns))
        lines.append("".join(f"{self.mean[name]:{self.width}.4f}" for name in columns))
        for name, ends in self._named_intervals().items():
            lines += interval_lines(ends, columns, name, self.width)
        return "\n".join([*lines, "", *self.details(), self.summary_sentence()]).replace("\n\n\n", "\n\n")

    def tree(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of metrics.json in JSON's types; what is not finite is null. `source`: what was scored and
        how, for the reader of the file."""
        return {
            "schema": SCHEMA,
            "task": self.task,
            "metrics": finite(self.mean),
            "intervals": {name: list(ends) for name, ends in self.intervals.items() if name in self.mean},
            "scene_intervals": {name: list(ends) for name, ends in self.scene_intervals.items() if name in self.mean},
            "formulae": {name: self.formula(name) for name in self.mean},
            "counts": dict(self.counts),
            **self.entries(),
            "skipped": list(self.skipped),
            "source": dict(source),
            "versions": versions(),
        }

    def write(self, folder: str | Path, *, source: Mapping[str, Any] | None = None) -> list[Path]:
        """Write metrics.json and tables as CSV, making the folder; return their paths. Raises StorageError if the
        folder cannot be made or written to."""
        tree = json.dumps(self.tree(source or {}), indent=2, allow_nan=False) + "\n"
        files = sorted({"metrics.json": tree, **self.files()}.items(), key=lambda file: isinstance(file[1], bytes))
        folder = make_folder(folder)
        for name, content in files:
            if isinstance(content, str):
                write_text(folder / name, content)
            else:
                write_bytes(folder / name, content)
        return [folder / name for name, _ in files]

    def write_page(
        self,
        path: str | Path,
        *,
        title: str,
        subtitle: str | None = None,
        figures: Sequence[Figure] = (),
        baseline: Row | None = None,
        **more: Any,
    ) -> Path:
        """Write the page of the scores. Raises StorageError if it cannot be written. `subtitle`: default: the
        protocol's name and the summary; `more`: of the template: warning, times, card, config, curves, further."""
        usual = ", ".join(text for text in (self.name, self.summary_sentence()) if text)
        values: dict[str, Any] = {
            **EVALUATION, "template": "evaluation_report.html", "cards": self.cards(), "protocol": self.protocol_text,
            "summary": self.summary_sentence(), "skipped": self.skipped, **self.page(figures, baseline), **more,
        }  # fmt: skip
        return write_page(path, title=title, subtitle=usual if subtitle is None else subtitle, **values)

    def _named_intervals(self) -> dict[str, Mapping[str, Interval]]:
        return {"95% over images": self.intervals, "95% over scenes": self.scene_intervals}


class PooledScores(Scores):
    """Scores that are no means over images: of pixels or segments that are counted over all of them."""

    names: Sequence[str]  # of the images that were scored

    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        return {"images": len(self.names) + len(self.skipped), "scored": len(self.names), "skipped": len(self.skipped)}

    @abstractmethod
    def redrawn(self, groups: Sequence[str]) -> Mapping[str, Bootstrap]:
        """Return the scores over redrawn images. `groups`: what is drawn as a whole, for each image."""

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """95% bootstrap interval of each score, the images being the sample."""
        return self._intervals(self.names)

    @cached_property
    def scene_intervals(self) -> Mapping[str, Interval]:
        """95% bootstrap interval of each score, whole scenes being the sample; empty with too few scenes."""
        scenes = scenes_of(self.names)
        return self._intervals([scenes[name] for name in self.names])

    def _intervals(self, groups: Sequence[str]) -> Mapping[str, Interval]:
        return {name: redrawn.interval() for name, redrawn in self.redrawn(groups).items()}


ARROWS = {"min": "↓", "max": "↑", None: ""}


def tables(results: Sequence[Scores]) -> str:
    """Return a line per protocol, for a terminal."""
    columns, size = results[0].columns(), results[0].width
    width = max(len(result.name) for result in results)
    lines = [" " * width + "".join(f"{name:>{size}}" for name in columns) + f"{'images':>{size}}"]
    for result in results:
        values = "".join(f"{result.mean[name]:{size}.4f}" for name in columns)
        lines.append(f"{result.name:{width}}{values}{result.counts['scored']:>{size},}")
    resized = [result.name for result in results if result.counts.get("resized_predictions")]
    if resized:
        lines += ["", f"predictions were resized to fit these protocols: {', '.join(resized)}"]
    return "\n".join([*lines, "", "`densevit list protocols NAME` explains each."])
