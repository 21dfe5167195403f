"""The HTML report of a depth evaluation: numbers, curves, samples, time, configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from markupsafe import Markup

from densevit.evaluation.depth.evaluate import Evaluation
from densevit.evaluation.depth.extra_metrics import formula, has_direction, is_larger_better
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.protocol_text import describe
from densevit.evaluation.depth.report import summary_sentence
from densevit.reporting.figures import Figure
from densevit.reporting.html_page import interval_text, write_evaluation_page
from densevit.reporting.svg_charts import Bar, Points, axis, bar_chart, line_chart

BINS = 8  # of the histogram of images; with fewer images there is none


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the page shows; what is empty is left out.

    Attributes:
        subtitle: a sentence under the title: model, data, hardware.
        warning: what makes the numbers doubtful.
        baseline: scores of the best constant depth map on the same images, to compare the model with.
        curves: name -> (step, value) points, a chart for each.
        samples: in the order of the page.
        further: sections of other tasks.
        times: what -> seconds.
        config: the resolved config as text.
        card: the checkpoint's model card.
    """

    title: str
    evaluation: Evaluation
    subtitle: str = ""
    warning: str = ""
    baseline: Evaluation | None = None
    curves: Mapping[str, Points] = field(default_factory=dict)
    samples: Sequence[Figure] = ()
    further: Markup | str = ""
    times: Mapping[str, float] = field(default_factory=dict)
    config: str = ""
    card: Mapping[str, object] = field(default_factory=dict)


def write_html(path: str | Path, report: Report) -> Path:
    """Writes the page.

    Raises:
        StorageError: it cannot be written.
    """
    found = report.evaluation
    intervals = {"95% over images": found.intervals, "95% over scenes": found.scene_intervals}
    intervals = {name: each for name, each in intervals.items() if each}
    means = {"model": found.mean} | ({"constant map": report.baseline.mean} if report.baseline else {})
    metrics = [
        (
            f"{metric} {'↑' if is_larger_better(metric) else '↓'}" if has_direction(metric) else metric,
            [f"{mean[metric]:.4f}" if metric in mean else "–" for mean in means.values()]
            + [interval_text(each.get(metric)) for each in intervals.values()],
            formula(metric),
        )
        for metric in (*METRICS, *(name for name in found.mean if name not in METRICS and "@" not in name))
    ]
    return write_evaluation_page(
        path,
        template="depth_report.html",
        title=report.title,
        subtitle=report.subtitle,
        warning=report.warning,
        cards=_cards(report),
        curves=[line_chart(name, points) for name, points in report.curves.items() if points],
        columns=[*means, *intervals],
        metrics=metrics,
        distance=_range_charts(found, "m", "true distance in metres"),
        fov=_range_charts(found, "deg", "horizontal field of view in degrees"),
        uncertainty=_uncertainty_charts(found),
        histogram=_histogram(found),
        samples=report.samples,
        further=report.further,
        times=report.times,
        protocol=describe(found.protocol),
        summary=summary_sentence(found),
        skipped=found.skipped,
        card=report.card,
        config=report.config,
    )


def _cards(report: Report) -> list[tuple[str, str, str]]:
    mean = report.evaluation.mean
    cards = [("AbsRel", f"{mean['abs_rel']:.4f}", "of the model")]
    if report.baseline is not None:
        constant = report.baseline.mean["abs_rel"]
        cards.append(("AbsRel", f"{constant:.4f}", "of the best constant map"))
        cards.append(("Ratio", f"{mean['abs_rel'] / constant:.3f}" if constant else "–", "model / constant map"))
    return [
        *cards,
        ("δ < 1.25", f"{mean['d1']:.1%}", "of the pixels"),
        ("RMSE", f"{mean['rmse']:.3f} m", "of the model"),
    ]


def _range_charts(found: Evaluation, unit: str, caption: str) -> list[Markup]:
    """The error by ranges of distance or of fields of view, where that was asked for and there are several."""
    errors = (("abs_rel", "AbsRel"), ("rmse", "RMSE in metres"), ("d1", "share within 1.25"))
    bars = {what: _bars_by_range(found, base, unit) for base, what in errors}
    return [bar_chart(f"{what}, by {caption}", each) for what, each in bars.items() if len(each) > (unit == "deg")]


def _bars_by_range(found: Evaluation, base: str, unit: str) -> list[Bar]:
    fitting = [name for name in found.mean if name.startswith(f"{base}@") and name.endswith(unit)]
    ends = {name: name.removeprefix(f"{base}@").removesuffix(unit) for name in fitting}
    names = sorted(ends, key=lambda name: float(ends[name].partition("-")[0]))
    return [(ends[name], found.mean[name], found.intervals.get(name)) for name in names]


def _uncertainty_charts(found: Evaluation) -> list[Markup]:
    """Sparsification beside that of the true errors, and the coverage of intervals by distance."""
    if "coverage" not in found.mean:
        return []

    def curve(base: str) -> Points:
        points = {name: value for name, value in found.mean.items() if name.startswith(f"{base}@") and name[-1] == "%"}
        return [*((float(name.partition("@")[2][:-1]), value) for name, value in points.items()), (100.0, 0.0)]

    return [
        line_chart("AbsRel without the most uncertain % of the pixels (thin: by true error)", curve("sparsification"),
                   reference=curve("oracle")),
        *(
            bar_chart(f"coverage of intervals, by {which} distance in metres", _bars_by_range(found, name, "m"))
            for name, which in (("coverage", "true"), ("coverage_predicted", "predicted"))
        ),
    ]  # fmt: skip


def _histogram(found: Evaluation) -> Markup | None:
    """How the error is spread over the images."""
    if len(found.rows) < BINS:
        return None
    errors = sorted(row["abs_rel"] for _, row in found.rows)
    ticks = axis([errors[0], errors[round(0.98 * (len(errors) - 1))]], BINS)
    bars: list[Bar] = [(f"{a:.3g}", float(sum(a <= error < b for error in errors)), None) for a, b in pairwise(ticks)]
    bars.append((f"≥ {ticks[-1]:.3g}", float(sum(error >= ticks[-1] for error in errors)), None))
    return bar_chart("images by AbsRel", bars)
