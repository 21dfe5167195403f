"""The result of a validation as one HTML page, with images of the worst samples."""

import base64
from collections.abc import Iterator
from html import escape
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.data.io.readers import read_image
from densevit.data.io.writers import encode
from densevit.data.validation.issues import ISSUE_TYPES, LEVELS, Issue
from densevit.data.validation.report import issues_by_type, summary_lines, verdict
from densevit.data.validation.validator import ValidationReport
from densevit.errors import DataError
from densevit.ops.colormap import colorize
from densevit.utils.atomic_io import write_text

MAX_ROWS = 50  # issues of a type on the page; the JSON has all
MAX_WIDTH = 320  # pixels of an image
MAX_SAMPLES = 24


def write_html(path: Path, report: ValidationReport, *, style: str = "") -> None:
    """Writes the page.

    Args:
        style: a style sheet.
    """
    write_text(path, page(report, style))


def page(report: ValidationReport, style: str) -> str:
    said = "".join(f"<p>{escape(line)}</p>" for summary in report.summaries for line in summary_lines(summary))
    sections = "".join(_sections(report))
    shown = "".join(_samples(report))
    samples = f"<h2>Worst samples</h2>{shown}" if shown else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Dataset validation</title><style>{style}</style></head><body><main><h1>Dataset validation</h1>"
        f"<p><b>{escape(verdict(report))}</b></p>{said}{sections}{samples}</main></body></html>\n"
    )


def _sections(report: ValidationReport) -> Iterator[str]:
    for level in LEVELS:
        groups = issues_by_type(report.issues, level)
        if groups:
            yield f"<h2>{level.capitalize()}s</h2>"
        for type_, issues in groups.items():
            rows = "".join(_row(issue) for issue in issues[:MAX_ROWS])
            more = f"<p>and {len(issues) - MAX_ROWS:,} more</p>" if len(issues) > MAX_ROWS else ""
            head = f"<h3><b>{escape(ISSUE_TYPES[type_].title)}</b> <span>{len(issues):,}</span></h3>"
            remedy = f"<p>{escape(ISSUE_TYPES[type_].remedy)}</p>"
            yield f'{head}{remedy}<div class="metrics"><table>{rows}</table></div>{more}'


def _row(issue: Issue) -> str:
    cells = (issue.split, issue.path or issue.name, issue.reason)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _samples(report: ValidationReport) -> Iterator[str]:
    """The samples of the first issues that can be shown, a few of each type."""
    shown: set[tuple[str, int]] = set()
    for level in LEVELS:
        for type_, issues in issues_by_type(report.issues, level).items():
            for issue in issues[:3]:
                if issue.index is None or (issue.split, issue.index) in shown or len(shown) >= MAX_SAMPLES:
                    continue
                panels = "".join(_panels(report, issue))
                if panels:
                    shown.add((issue.split, issue.index))
                    yield f'<section class="sample">{_head(type_, issue)}<div class="panels">{panels}</div></section>'


def _head(type_: str, issue: Issue) -> str:
    title, name, reason = (escape(words) for words in (ISSUE_TYPES[type_].title, issue.name, issue.reason))
    return f"<h3><b>{title}</b> {name} <span>{reason}</span></h3>"


def _panels(report: ValidationReport, issue: Issue) -> Iterator[str]:
    """Image and depth, or the image alone where the two cannot be read together."""
    data = report.data[issue.split]
    assert issue.index is not None
    try:
        sample = data.read(issue.index)
    except Exception:  # the issue says what is wrong with it
        path = data.files(issue.index).get("image")
        try:
            if path is not None:
                yield _figure("image", read_image(path))
        except DataError:
            return
        return
    yield _figure("image", sample.image)
    if sample.depth is not None and sample.valid is not None:
        yield _figure("depth", colorize(np.where(sample.valid, sample.depth, np.nan)))


def _figure(caption: str, pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    h, w = pixels.shape[:2]
    size = (MAX_WIDTH, max(1, round(h * MAX_WIDTH / w)))
    small = pixels if w <= MAX_WIDTH else np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))
    source = f"data:image/jpeg;base64,{base64.b64encode(encode('.jpg', small)).decode()}"
    return f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
