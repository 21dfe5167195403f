"""The report of an evaluation of normals: a table, `metrics.json`, `per_image.csv`, `report.html`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from densevit.evaluation.bootstrap import no_interval_reason
from densevit.evaluation.normals.evaluate import NormalsScores
from densevit.evaluation.normals.metrics import FORMULAE, is_larger_better
from densevit.reporting.figures import Figure
from densevit.reporting.html_page import interval_text, write_evaluation_page
from densevit.reporting.tables import interval_lines, json_text, rows_csv, write_files
from densevit.version import versions

SCHEMA = 1  # of metrics.json; a new number when a key changes its meaning


def table(scores: NormalsScores) -> str:
    """The protocol in words and the scores, for a terminal."""
    names = [*scores.mean]
    lines = [describe(scores), "", "".join(f"{name:>13}" for name in names)]
    lines.append("".join(f"{value:13.4f}" for value in scores.mean.values()))
    lines += interval_lines(scores.intervals, names, "95% over images", width=13)
    lines += interval_lines(scores.scene_intervals, names, "95% over scenes", width=13)
    return "\n".join([*lines, "", summary_sentence(scores)])


def describe(scores: NormalsScores) -> str:
    protocol = scores.protocol
    return f"{protocol.name}: {protocol.description} ({protocol.source}); degrees and percent"


def summary_sentence(scores: NormalsScores) -> str:
    """How many images and pixels were scored, in a sentence."""
    images = len(scores.rows) + len(scores.skipped)
    parts = [f"{len(scores.rows):,} of {images:,} images scored, {scores.pixels:,} pixels"]
    parts += [f"{len(scores.skipped):,} without true normals"] if scores.skipped else []
    parts += no_interval_reason(len(scores.rows)) if scores.protocol.pool == "images" else []
    return "; ".join(parts) + "."


def write_report(folder: Path, scores: NormalsScores, *, source: Mapping[str, Any]) -> list[Path]:
    """Writes `metrics.json` and `per_image.csv`, making the folder."""
    tree = {
        "schema": SCHEMA,
        "protocol": asdict(scores.protocol),
        "metrics": scores.mean,
        "intervals": {name: list(ends) for name, ends in scores.intervals.items()},
        "scene_intervals": {name: list(ends) for name, ends in scores.scene_intervals.items()},
        "counts": {
            "images": len(scores.rows) + len(scores.skipped),
            "scored": len(scores.rows),
            "pixels": scores.pixels,
        },
        "skipped": list(scores.skipped),
        "source": dict(source),
        "versions": versions(),
    }
    per_image = rows_csv("name", [*scores.mean], scores.rows, scores.skipped)
    return write_files(folder, {"metrics.json": json_text(tree), "per_image.csv": per_image})


def write_html(
    path: Path,
    scores: NormalsScores,
    *,
    title: str,
    samples: Sequence[Figure],
    times: Mapping[str, float],
    card: Mapping[str, Any],
) -> Path:
    """Writes the page.

    Raises:
        StorageError: it cannot be written.
    """
    intervals = {"95% over images": scores.intervals, "95% over scenes": scores.scene_intervals}
    intervals = {name: each for name, each in intervals.items() if each}
    metrics = [
        (
            f"{metric} {'↑' if is_larger_better(metric) else '↓'}",
            [f"{value:.4f}", *(interval_text(each.get(metric)) for each in intervals.values())],
            FORMULAE[metric],
        )
        for metric, value in scores.mean.items()
    ]
    return write_evaluation_page(
        path,
        title=title,
        subtitle=f"{scores.protocol.name}, {summary_sentence(scores)}",
        cards=[
            ("Mean angle", f"{scores.mean['mean']:.2f}°", "of the pixels, to the truth"),
            ("Median angle", f"{scores.mean['median']:.2f}°", "of the pixels"),
            ("Within 11.25°", f"{scores.mean['within_11.25']:.1f}%", "of the pixels"),
        ],
        columns=["model", *intervals],
        metrics=metrics,
        samples=samples,
        note="Normals in camera axes: red is to the right, green up, blue towards the camera.",
        times=times,
        protocol=describe(scores),
        card=card,
    )
