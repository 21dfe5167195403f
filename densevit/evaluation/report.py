"""An evaluation on paper: a table to print, `metrics.json` and `per_image.csv` to keep."""

import csv
import io
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from densevit import __version__
from densevit.errors import StorageError
from densevit.evaluation.depth_metrics import METRICS
from densevit.evaluation.evaluate import Evaluation
from densevit.evaluation.protocols import COUNTS
from densevit.files import write_text

SCHEMA = 1  # of metrics.json; a new number when a key changes its meaning


def table(evaluation: Evaluation) -> str:
    """The means, under the protocol in words and above what was left out; for a terminal."""
    names = "".join(f"{name:>10}" for name in METRICS)
    values = "".join(f"{evaluation.mean[name]:10.4f}" for name in METRICS)
    return "\n".join([evaluation.protocol.describe(), "", names, values, "", account(evaluation)])


def account(evaluation: Evaluation) -> str:
    """How many images and pixels the means rest on, and what was wrong with the rest, in a sentence."""
    counts = evaluation.counts
    said = [f"{counts['scored']:,} of {counts['images']:,} images scored, {counts['pixels']:,} pixels"]
    if counts["skipped"]:
        said.append(f"{counts['skipped']:,} without truth that counts")
    if counts["invalid_predictions"]:
        images = counts["images_with_invalid_predictions"]
        said.append(f"{counts['invalid_predictions']:,} invalid predictions in {images:,} images")
    if counts["resized_predictions"]:
        said.append(f"{counts['resized_predictions']:,} predictions resized")
    return "; ".join(said) + "."


def write_report(folder: str | Path, evaluation: Evaluation, *, source: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes `metrics.json` and `per_image.csv`, making the folder.

    Args:
        source: what was scored, for the reader of the file: checkpoint, data set, options; plain JSON values.

    Returns:
        the paths of both.

    Raises:
        StorageError: the folder cannot be made or written to.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error.strerror}).") from error
    metrics, images = folder / "metrics.json", folder / "per_image.csv"
    write_text(metrics, json.dumps(as_tree(evaluation, source or {}), indent=2, allow_nan=False) + "\n")
    write_text(images, as_csv(evaluation))
    return [metrics, images]


def as_tree(evaluation: Evaluation, source: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but the rows, in JSON's types."""
    protocol = evaluation.protocol
    return {
        "schema": SCHEMA,
        "protocol": {
            "name": protocol.name,
            "words": protocol.describe(),
            "range": list(protocol.range),
            "align": protocol.align,
        },
        "metrics": evaluation.mean,
        "counts": evaluation.counts,
        "skipped": list(evaluation.skipped),
        "source": dict(source),
        "versions": versions(),
    }


def as_csv(evaluation: Evaluation) -> str:
    """One line per image in full precision; the columns of a skipped one are empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    columns = (*METRICS, *COUNTS)
    lines.writerow(["name", *columns])
    lines.writerows([name, *(_number(row[column]) for column in columns)] for name, row in evaluation.rows)
    lines.writerows([name, *([""] * len(columns))] for name in evaluation.skipped)
    return text.getvalue()


def versions() -> dict[str, str]:
    others = {name: version(name) for name in ("torch", "numpy")}
    return {"densevit": __version__, "python": platform.python_version(), **others}


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
