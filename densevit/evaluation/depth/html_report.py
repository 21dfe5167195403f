"""A run on one page: numbers, curves, pictures, time, configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

from densevit.evaluation.depth.evaluate import Evaluation
from densevit.evaluation.depth.extra_metrics import formula, is_larger_better
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.report import WORST, summary_sentence
from densevit.reporting.figures import Picture, row
from densevit.reporting.html_page import card, details, number_cards, paragraphs, sheet, span, times
from densevit.reporting.svg_charts import Bar, Points, axis, bar_chart, line_chart
from densevit.utils.atomic_io import write_text

BINS = 8  # of the histogram of images; with fewer images there is none


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the page shows; what is empty is left out.

    Attributes:
        subtitle: a sentence under the title: model, data, hardware.
        baseline: scores of the best constant depth map on the same images, to set the model's against.
        curves: name -> (step, value) points, a chart for each.
        pictures: in the order of the page.
        further: sections of other tasks, HTML by heading.
        times: what -> seconds.
        config: the resolved config as text.
        card: what the checkpoint says of itself.
    """

    title: str
    evaluation: Evaluation
    subtitle: str = ""
    baseline: Evaluation | None = None
    curves: Mapping[str, Points] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()
    further: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    config: str = ""
    card: Mapping[str, object] = field(default_factory=dict)


def write_html(path: str | Path, report: Report) -> Path:
    """Writes the page.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(path, page(report))
    return Path(path)


def page(report: Report) -> str:
    sections = {
        "Curves": "".join(line_chart(name, points) for name, points in report.curves.items() if points),
        "Metrics": _metrics(report),
        "Distance": _distance(report.evaluation),
        "Images": _images(report.evaluation),
        "Pictures": "".join(row(picture) for picture in report.pictures),
        **report.further,
        "Time": times(report.times),
        "Protocol": paragraphs(
            report.evaluation.protocol.describe(), summary_sentence(report.evaluation), _skipped(report)
        ),
        "Checkpoint": card(report.card),
        "Configuration": details("as resolved", report.config),
    }
    return sheet(report.title, report.subtitle, _key_numbers(report), sections)


def _key_numbers(report: Report) -> str:
    mean = report.evaluation.mean
    cards = [("AbsRel", f"{mean['abs_rel']:.4f}", "of the model")]
    if report.baseline is not None:
        constant = report.baseline.mean["abs_rel"]
        cards.append(("AbsRel", f"{constant:.4f}", "of the best constant map"))
        cards.append(("Ratio", f"{mean['abs_rel'] / constant:.3f}" if constant else "–", "model / constant map"))
    cards += [("δ < 1.25", f"{mean['d1']:.1%}", "of the pixels"), ("RMSE", f"{mean['rmse']:.3f} m", "of the model")]
    return number_cards(cards)


def _metrics(report: Report) -> str:
    found = report.evaluation
    columns = [("model", found.mean)]
    if report.baseline is not None:
        columns.append(("constant map", report.baseline.mean))
    spreads = {"95% over images": found.intervals, "95% over scenes": found.scene_intervals}
    spreads = {name: spread for name, spread in spreads.items() if spread}
    head = "".join(f"<th>{name}</th>" for name in ("", *(name for name, _ in columns), *spreads, "formula"))
    lines = []
    for metric in (*METRICS, *(name for name in found.mean if name not in METRICS and "@" not in name)):
        better = "↑" if is_larger_better(metric) else "↓"
        cells = [f"{scores[metric]:.4f}" if metric in scores else "–" for _, scores in columns]
        cells += [span(spread.get(metric)) for spread in spreads.values()]
        values = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr><th>{metric} {better}</th>{values}<td>{escape(formula(metric))}</td></tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _distance(found: Evaluation) -> str:
    """Charts of the error against the true distance, where the rows have it."""
    charts = []
    for base, told in (("abs_rel", "AbsRel"), ("rmse", "RMSE, metres"), ("d1", "share within 1.25")):
        names = [name for name in found.mean if name.startswith(f"{base}@")]
        names.sort(key=lambda name: float(name.partition("@")[2].partition("-")[0]))
        bars = [
            (name.partition("@")[2].removesuffix("m"), found.mean[name], found.intervals.get(name)) for name in names
        ]
        charts += [bar_chart(told, bars, "by true distance in metres")] if bars else []
    return "".join(charts)


def _images(found: Evaluation) -> str:
    """How the error is spread over the images, and which are the worst."""
    if len(found.rows) < BINS:
        return ""
    errors = sorted(row["abs_rel"] for _, row in found.rows)
    ticks = axis([errors[0], errors[round(0.98 * (len(errors) - 1))]], BINS)
    bars: list[Bar] = []
    for low, high in pairwise(ticks):
        bars.append((f"{low:.3g}", float(sum(low <= error < high for error in errors)), None))
    beyond = sum(error >= ticks[-1] for error in errors)
    bars.append((f"≥ {ticks[-1]:.3g}", float(beyond), None))
    scores = dict(found.rows)
    worst = "".join(
        f"<tr><th>{escape(name)}</th><td>{scores[name]['abs_rel']:.4f}</td><td>{scores[name]['rmse']:.3f} m</td></tr>"
        for name in found.ranked()[::-1][:WORST]
    )
    head = "<thead><tr><th>worst images</th><th>AbsRel</th><th>RMSE</th></tr></thead>"
    return bar_chart("images by AbsRel", bars) + f"<table>{head}<tbody>{worst}</tbody></table>"


def _skipped(report: Report) -> str:
    names = report.evaluation.skipped
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"Without truth that counts: {shown}." if names else ""
