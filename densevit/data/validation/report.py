"""The result of a validation: as text, as JSON, and as one HTML page with images of samples that have issues."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit import __version__
from densevit.data.index.paths import first_five
from densevit.data.io.readers import read_image
from densevit.data.validation.issues import ISSUE_TYPES, LEVELS, Issue
from densevit.data.validation.validator import SplitSummary, ValidationReport
from densevit.errors import DataError
from densevit.ops.colors import colorize
from densevit.reporting.figures import Figure, jpeg
from densevit.reporting.html_page import write_page
from densevit.utils.atomic_io import write_text

SCHEMA = 2  # a new number when a key changes its meaning


def format_text(report: ValidationReport) -> str:
    """Return all types of issues with their first five, the numbers of each split, and the verdict."""
    lines = []
    for summary in report.summaries:
        lines += [*summary_lines(summary), *(f"  {fact}" for fact in report.data[summary.split].facts)]
    for level in LEVELS:
        for type_, issues in issues_by_type(report.issues, level).items():
            shown = first_five(f"[{issue.split}] {issue}" for issue in issues)
            lines += ["", f"{level}: {ISSUE_TYPES[type_].title} ({len(issues):,}){shown}"]
            lines.append(f"  -> {ISSUE_TYPES[type_].remedy}")
    return "\n".join([*lines, "", verdict(report)])


def verdict(report: ValidationReport) -> str:
    counts = {level: sum(issue.level == level for issue in report.issues) for level in LEVELS}
    numbers = ", ".join(f"{count:,} {level}{'s' * (count != 1)}" for level, count in counts.items())
    rate = report.samples / max(report.seconds, 1e-9)
    took = f"{report.samples:,} samples in {report.seconds:.1f} s ({rate:,.0f} a second)"
    if not report.ok:
        advice = "Do not train on this data yet."
    elif counts["warning"]:
        advice = "No errors; read the warnings before training."
    else:
        advice = "Good to go."
    return f"{numbers}; {took}. {advice}"


def summary_lines(summary: SplitSummary) -> Iterator[str]:
    sizes = ", ".join(f"{size} ({count:,})" for size, count in list(summary.sizes.items())[:4])
    more = f" and {len(summary.sizes) - 4} more sizes" if len(summary.sizes) > 4 else ""
    yield f"{summary.split}: {summary.readable:,} of {summary.samples:,} samples are readable; {sizes or 'none'}{more}"
    if summary.depth is not None:
        low, middle, high = summary.depth
        valid = f"{summary.valid_fraction:.0%} of the pixels are valid"
        yield f"  depth {low:.3g} to {high:.3g} m, median {middle:.3g} m; {valid}"
    if summary.labelled_fraction is not None:
        yield f"  classes in the labels: {summary.classes:,}; {summary.labelled_fraction:.1%} of the pixels have one"
    if summary.objects is not None:
        sizes = ""
        if summary.object_side is not None:
            sizes = f", median side {summary.object_side:.0f} pixels; {summary.small_objects:.0%} are small (under "
            sizes += f"32 x 32), {summary.tiny_objects:.0%} under 8 x 8"
        yield f"  {summary.objects:,} objects{sizes}"


def issues_by_type(issues: Sequence[Issue], level: str) -> dict[str, list[Issue]]:
    """Map each type to its issues, in the order of the table."""
    groups: dict[str, list[Issue]] = {name: [] for name, type_ in ISSUE_TYPES.items() if type_.level == level}
    for issue in issues:
        if issue.level == level:
            groups[issue.type].append(issue)
    return {type_: group for type_, group in groups.items() if group}


def to_dict(report: ValidationReport) -> dict[str, Any]:
    """Return the report in JSON's types."""
    return {
        "schema": SCHEMA,
        "densevit": __version__,
        "ok": report.ok,
        "samples": report.samples,
        "seconds": round(report.seconds, 3),
        "splits": [asdict(summary) for summary in report.summaries],
        "issues": [{**asdict(issue), "level": issue.level} for issue in report.issues],
    }


def write_json(path: Path, report: ValidationReport) -> None:
    write_text(path, json.dumps(to_dict(report), indent=2, allow_nan=False) + "\n")


MAX_ROWS = 50  # issues of a type on the page; the JSON has all
IMAGE_WIDTH = 320  # pixels of an image
MAX_SAMPLES = 24


def write_html(path: Path, report: ValidationReport) -> None:
    """Write the page. Raises StorageError if it cannot be written."""
    groups = {level: issues_by_type(report.issues, level) for level in LEVELS}
    levels = [
        (
            f"{level.capitalize()}s",
            [(ISSUE_TYPES[name], all_[:MAX_ROWS], max(0, len(all_) - MAX_ROWS)) for name, all_ in issues.items()],
        )
        for level, issues in groups.items()
        if issues
    ]
    write_page(
        path,
        "validation_report.html",
        title="Dataset validation",
        verdict=verdict(report),
        summary=[line for summary in report.summaries for line in summary_lines(summary)],
        levels=levels,
        samples=list(_figures(report)),
    )


def _figures(report: ValidationReport) -> Iterator[Figure]:
    """Yield the samples of the first issues that can be shown, a few of each type."""
    shown: set[tuple[str, int]] = set()
    for level in LEVELS:
        for type_, issues in issues_by_type(report.issues, level).items():
            for issue in issues[:3]:
                if issue.index is None or (issue.split, issue.index) in shown or len(shown) >= MAX_SAMPLES:
                    continue
                if panels := list(_panels(report, issue)):
                    shown.add((issue.split, issue.index))
                    title = ISSUE_TYPES[type_].title
                    yield Figure(name=issue.name, label=title, score=issue.reason, panels=panels, thumbnails=())


def _panels(report: ValidationReport, issue: Issue) -> Iterator[tuple[str, str]]:
    """Yield the image and depth, or the image alone where the two cannot be read together."""
    data = report.data[issue.split]
    assert issue.index is not None
    try:
        sample = data.read(issue.index)
    except Exception:  # the issue says what is wrong with it
        path = data.files(issue.index).get("image")
        try:
            if path is not None:
                yield "image", _small_jpeg(read_image(path))
        except DataError:
            return
        return
    yield "image", _small_jpeg(sample.image)
    if sample.depth is not None and sample.valid is not None:
        yield "depth", _small_jpeg(colorize(np.where(sample.valid, sample.depth, np.nan)))


def _small_jpeg(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    """Return a `data:` address of the image, at most IMAGE_WIDTH wide."""
    h, w = pixels.shape[:2]
    size = (IMAGE_WIDTH, max(1, round(h * IMAGE_WIDTH / w)))
    return jpeg(pixels if w <= IMAGE_WIDTH else np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)))
