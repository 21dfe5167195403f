"""An examination as one self-contained page, with pictures of the worst."""

import base64
from collections.abc import Iterator
from html import escape
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.data.io.readers import read_image
from densevit.data.io.writers import encode
from densevit.data.validation.issues import KINDS, LEVELS, Finding
from densevit.data.validation.report import by_kind, summary_lines, verdict
from densevit.data.validation.validator import ValidationReport
from densevit.errors import DataError
from densevit.ops.colormap import colorize
from densevit.utils.atomic_io import write_text

LISTED = 50  # findings of a kind on the page; the JSON has all
WIDEST = 320  # pixels of a picture
PICTURES = 24


def write_html(path: Path, examination: ValidationReport, *, style: str = "") -> None:
    """Writes the page.

    Args:
        style: a style sheet.
    """
    write_text(path, page(examination, style))


def page(examination: ValidationReport, style: str) -> str:
    said = "".join(f"<p>{escape(line)}</p>" for summary in examination.summaries for line in summary_lines(summary))
    sections = "".join(_sections(examination))
    shown = "".join(_pictures(examination))
    pictures = f"<h2>Pictures of the worst</h2>{shown}" if shown else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Data examined</title><style>{style}</style></head><body><main><h1>Data examined</h1>"
        f"<p><b>{escape(verdict(examination))}</b></p>{said}{sections}{pictures}</main></body></html>\n"
    )


def _sections(examination: ValidationReport) -> Iterator[str]:
    for level in LEVELS:
        groups = by_kind(examination.findings, level)
        if groups:
            yield f"<h2>{level.capitalize()}s</h2>"
        for kind, findings in groups.items():
            rows = "".join(_row(finding) for finding in findings[:LISTED])
            more = f"<p>and {len(findings) - LISTED:,} more</p>" if len(findings) > LISTED else ""
            head = f"<h3><b>{escape(KINDS[kind].title)}</b> <span>{len(findings):,}</span></h3>"
            yield f'{head}<p>{escape(KINDS[kind].remedy)}</p><div class="metrics"><table>{rows}</table></div>{more}'


def _row(finding: Finding) -> str:
    cells = (finding.split, finding.path or finding.name, finding.reason)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _pictures(examination: ValidationReport) -> Iterator[str]:
    """The samples of the first findings that can be shown, a few of each kind."""
    shown: set[tuple[str, int]] = set()
    for level in LEVELS:
        for kind, findings in by_kind(examination.findings, level).items():
            for finding in findings[:3]:
                if finding.index is None or (finding.split, finding.index) in shown or len(shown) >= PICTURES:
                    continue
                panels = "".join(_panels(examination, finding))
                if panels:
                    shown.add((finding.split, finding.index))
                    yield f'<section class="sample">{_head(kind, finding)}<div class="panels">{panels}</div></section>'


def _head(kind: str, finding: Finding) -> str:
    title, name, reason = (escape(words) for words in (KINDS[kind].title, finding.name, finding.reason))
    return f"<h3><b>{title}</b> {name} <span>{reason}</span></h3>"


def _panels(examination: ValidationReport, finding: Finding) -> Iterator[str]:
    """Image and depth, or the image alone where the two cannot be read together."""
    data = examination.data[finding.split]
    assert finding.index is not None
    try:
        sample = data.read(finding.index)
    except Exception:  # the finding says what is wrong with it
        path = data.files(finding.index).get("image")
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
    size = (WIDEST, max(1, round(h * WIDEST / w)))
    small = pixels if w <= WIDEST else np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))
    source = f"data:image/jpeg;base64,{base64.b64encode(encode('.jpg', small)).decode()}"
    return f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
