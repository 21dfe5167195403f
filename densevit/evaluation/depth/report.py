"""The report of a depth evaluation: a table, `metrics.json` and `per_image.csv`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from densevit.evaluation.bootstrap import no_interval_reason
from densevit.evaluation.depth.evaluate import Evaluation
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.protocol import COUNTS
from densevit.evaluation.depth.protocol_text import describe
from densevit.evaluation.records import WORST
from densevit.reporting.tables import interval_lines, json_text, rows_csv, write_files
from densevit.version import versions

SCHEMA = 1  # of metrics.json; a new number when a key changes its meaning


def table(evaluation: Evaluation) -> str:
    """The protocol in words, the means with their intervals, and what was left out, for a terminal."""
    names = "".join(f"{name:>10}" for name in METRICS)
    values = "".join(f"{evaluation.mean[name]:10.4f}" for name in METRICS)
    lines = [describe(evaluation.protocol), "", names, values]
    lines += interval_lines(evaluation.intervals, METRICS, "95% over images", width=10)
    lines += interval_lines(evaluation.scene_intervals, METRICS, "95% over scenes", width=10)
    further = [metric for metric in evaluation.mean if metric not in METRICS and not metric.endswith("%")]
    if further:
        lines += ["", *(_further(evaluation, metric) for metric in further)]
    return "\n".join([*lines, "", summary_sentence(evaluation)])


def _further(evaluation: Evaluation, metric: str) -> str:
    spread = evaluation.intervals.get(metric)
    text = "" if spread is None else f"  [{spread[0]:.4f}, {spread[1]:.4f}]"
    return f"{metric:>24}{evaluation.mean[metric]:12.4f}{text}"


def tables(evaluations: Sequence[Evaluation]) -> str:
    """One line per protocol; for a terminal."""
    width = max(len(found.protocol.name) for found in evaluations)
    lines = [" " * width + "".join(f"{name:>10}" for name in METRICS) + f"{'images':>10}"]
    for found in evaluations:
        values = "".join(f"{found.mean[name]:10.4f}" for name in METRICS)
        lines.append(f"{found.protocol.name:{width}}{values}{found.counts['scored']:>10,}")
    resized = [found.protocol.name for found in evaluations if found.counts["resized_predictions"]]
    if resized:
        lines += ["", f"predictions were resized to fit these protocols: {', '.join(resized)}"]
    return "\n".join([*lines, "", "`densevit protocols NAME` explains each."])


def summary_sentence(evaluation: Evaluation) -> str:
    """How many images and pixels were scored, skipped, invalid, clamped and resized, in a sentence."""
    counts = evaluation.counts
    parts = [f"{counts['scored']:,} of {counts['images']:,} images scored, {counts['pixels']:,} pixels"]
    if counts["skipped"]:
        parts.append(f"{counts['skipped']:,} without ground truth that counts")
    if counts["invalid_predictions"]:
        images = counts["images_with_invalid_predictions"]
        parts.append(f"{counts['invalid_predictions']:,} invalid predictions in {images:,} images")
    if counts["clamped_predictions"]:
        share = counts["clamped_predictions"] / counts["pixels"]
        parts.append(f"{counts['clamped_predictions']:,} predictions ({share:.1%}) clamped to the range")
    if counts["resized_predictions"]:
        parts.append(f"{counts['resized_predictions']:,} predictions resized")
    return "; ".join([*parts, *no_interval_reason(counts["scored"])]) + "."


def write_report(folder: str | Path, evaluation: Evaluation, *, source: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes `metrics.json` and `per_image.csv`, making the folder.

    Args:
        source: what was scored, for the reader of the file: checkpoint, data set, options; plain JSON values.

    Returns:
        the paths of both.

    Raises:
        StorageError: the folder cannot be made or written to.
    """
    content = {"metrics.json": json_text(as_tree(evaluation, source or {})), "per_image.csv": as_csv(evaluation)}
    return write_files(folder, content)


def as_tree(evaluation: Evaluation, source: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but the rows, in JSON's types; what has no end is null."""
    protocol = evaluation.protocol
    return {
        "schema": SCHEMA,
        "protocol": {**_plain(asdict(protocol)), "description": describe(protocol)},
        "metrics": evaluation.mean,
        "intervals": {name: list(spread) for name, spread in evaluation.intervals.items()},
        "scene_intervals": {name: list(spread) for name, spread in evaluation.scene_intervals.items()},
        "scenes": evaluation.scenes,
        "worst": evaluation.ranked()[::-1][:WORST],
        "counts": evaluation.counts,
        "skipped": list(evaluation.skipped),
        "source": dict(source),
        "versions": versions(),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_csv(evaluation: Evaluation) -> str:
    """One line per image in full precision; what an image does not have is empty."""
    return rows_csv("name", [*evaluation.mean, *COUNTS], evaluation.rows, evaluation.skipped)
