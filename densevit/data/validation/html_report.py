"""The result of a validation as one HTML page, with images of samples that have issues."""

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.data.io.readers import read_image
from densevit.data.validation.issues import ISSUE_TYPES, LEVELS, Issue
from densevit.data.validation.report import issues_by_type, summary_lines, verdict
from densevit.data.validation.validator import ValidationReport
from densevit.errors import DataError
from densevit.ops.colors import colorize
from densevit.reporting.figures import Figure, jpeg
from densevit.reporting.html_page import write_page

MAX_ROWS = 50  # issues of a type on the page; the JSON has all
MAX_WIDTH = 320  # pixels of an image
MAX_SAMPLES = 24


def write_html(path: Path, report: ValidationReport) -> None:
    """Writes the page. Raises StorageError if it cannot be written."""
    groups = {level: issues_by_type(report.issues, level) for level in LEVELS}
    levels = [
        (
            f"{level.capitalize()}s",
            [(ISSUE_TYPES[name], all_[:MAX_ROWS], max(0, len(all_) - MAX_ROWS)) for name, all_ in found.items()],
        )
        for level, found in groups.items()
        if found
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
    """The samples of the first issues that can be shown, a few of each type."""
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
    """Image and depth, or the image alone where the two cannot be read together."""
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
    """A `data:` address of the image, at most MAX_WIDTH wide."""
    h, w = pixels.shape[:2]
    size = (MAX_WIDTH, max(1, round(h * MAX_WIDTH / w)))
    return jpeg(pixels if w <= MAX_WIDTH else np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)))
