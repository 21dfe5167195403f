"""A run on one self-contained page: numbers, curves, pictures, time, configuration. Nothing is fetched to show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

from densevit.evaluation.bootstrap import Interval
from densevit.evaluation.charts import Bar, Points, axis, bar_chart, line_chart
from densevit.evaluation.depth_metrics import METRICS
from densevit.evaluation.evaluate import Evaluation
from densevit.evaluation.metric_sets import formula, is_larger_better
from densevit.evaluation.pictures import Picture, row
from densevit.evaluation.report import WORST, account, versions
from densevit.evaluation.style import STYLE
from densevit.files import write_text

BINS = 8  # of the histogram of images; with fewer images there is none


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the page shows; what is empty is left out.

    Attributes:
        subtitle: a sentence under the title: model, data, hardware.
        baseline: scores of the best constant depth map on the same images, to set the model's against.
        curves: name -> (step, value) points, a chart for each.
        pictures: in the order of the page.
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
        "Time": _times(report.times),
        "Protocol": _paragraphs(report.evaluation.protocol.describe(), account(report.evaluation), _skipped(report)),
        "Checkpoint": _card(report.card),
        "Configuration": f"<details open><summary>as resolved</summary><pre>{escape(report.config)}</pre></details>"
        if report.config
        else "",
    }
    body = "".join(
        f'<h2>{name}</h2><div class="{name.lower()}">{html}</div>' for name, html in sections.items() if html
    )
    made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(report.title)}</h1>{_paragraphs(report.subtitle)}{_key_numbers(report)}{body}"
        f"<footer>{escape(made_with)}</footer></main></body></html>\n"
    )


def _key_numbers(report: Report) -> str:
    mean = report.evaluation.mean
    cards = [("AbsRel", f"{mean['abs_rel']:.4f}", "of the model")]
    if report.baseline is not None:
        constant = report.baseline.mean["abs_rel"]
        cards.append(("AbsRel", f"{constant:.4f}", "of the best constant map"))
        cards.append(("Ratio", f"{mean['abs_rel'] / constant:.3f}" if constant else "–", "model / constant map"))
    cards += [("δ < 1.25", f"{mean['d1']:.1%}", "of the pixels"), ("RMSE", f"{mean['rmse']:.3f} m", "of the model")]
    return f'<div class="cards">{"".join(_number_card(*card) for card in cards)}</div>'


def _number_card(name: str, value: str, note: str) -> str:
    return f'<div class="card"><span>{escape(name)}</span><b>{escape(value)}</b><span>{escape(note)}</span></div>'


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
        cells += [_span(spread.get(metric)) for spread in spreads.values()]
        values = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr><th>{metric} {better}</th>{values}<td>{escape(formula(metric))}</td></tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _span(spread: Interval | None) -> str:
    return "–" if spread is None else f"{spread[0]:.4f} – {spread[1]:.4f}"


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


def _card(card: Mapping[str, object]) -> str:
    if not card:
        return ""
    text = "\n".join(f"{name}: {value}" for name, value in card.items() if value not in (None, "", (), {}))
    return f"<details open><summary>as the checkpoint tells</summary><pre>{escape(text)}</pre></details>"


def _times(times: Mapping[str, float]) -> str:
    if not times:
        return ""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{duration(t)}</td></tr>" for name, t in times.items())
    return f"<table><tbody>{lines}</tbody></table>"


def duration(seconds: float) -> str:
    """
    >>> duration(3723.4), duration(63.4), duration(0.0123)
    ('1 h 02 min', '1 min 03 s', '12.3 ms')
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"


def _skipped(report: Report) -> str:
    names = report.evaluation.skipped
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"Without truth that counts: {shown}." if names else ""


def _paragraphs(*texts: str) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)
