"""Panels for TensorBoard: images side by side under captions, the name of each above it, colour bars and classes below.
h x w pixels."""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.ops.colors import table

SIDE = 112  # pixels that an image is wide at least: smaller ones are repeated
LINE, LETTER, INK, PAPER = 16, 7, (30, 30, 30), 255

Image8 = UInt8[np.ndarray, "_ _ 3"]


class ColorBar(NamedTuple):
    """A colour map below some columns, with what its ends mean."""

    columns: range
    low: str
    cmap: str
    high: str


def panel(
    rows: Sequence[tuple[str, Sequence[Image8]]],
    captions: Sequence[str],
    bars: Sequence[ColorBar] = (),
    legend: Sequence[tuple[tuple[int, int, int], str]] = (),
) -> Image8:
    """Draw rows of images of one size.

    Args:
        rows: a line above the images of a row, and the images.
        captions: of the columns.
        legend: colours and what they mean.
    """
    factor = max(1, -(-SIDE // rows[0][1][0].shape[1]))
    width = factor * rows[0][1][0].shape[1]
    whole = len(captions) * width
    lines = [text_line(whole, {i * width: caption for i, caption in enumerate(captions)})]
    for text, images in rows:
        lines.append(text_line(whole, {0: text}))
        lines.append(np.concatenate(images, axis=1).repeat(factor, 0).repeat(factor, 1))
    if bars:
        lines.append(bar_line(whole, width, bars))
    offset, entries = 0, dict[int, tuple[tuple[int, int, int], str]]()
    for color, name in [*legend, ((0, 0, 0), "")]:
        needed = LINE + LETTER * (len(name) + 1)
        if entries and (not name or offset + needed > whole):
            line = text_line(whole, {x + LINE: text for x, (_, text) in entries.items()})
            for x, (shade, _) in entries.items():
                line[3:-3, x + 3 : x + LINE - 3] = shade
            lines.append(line)
            offset, entries = 0, {}
        entries[offset] = color, name
        offset += needed
    return np.concatenate(lines)


def text_line(width: int, texts: dict[int, str]) -> Image8:
    """Return a strip with texts from pixels on; letters outside of ASCII are drawn as question marks."""
    line = np.full((LINE, width, 3), PAPER, np.uint8)
    for x, text in texts.items():
        cv2.putText(line, text, (x + 2, LINE - 5), cv2.FONT_HERSHEY_SIMPLEX, 0.37, INK, 1, cv2.LINE_AA)
    return line


def bar_line(whole: int, width: int, bars: Sequence[ColorBar]) -> Image8:
    texts = {bar.columns.start * width: bar.low for bar in bars}
    ends = {bar.columns.stop * width - LETTER * len(bar.high) - 4: bar.high for bar in bars}
    line = text_line(whole, texts | ends)
    for bar in bars:
        start = bar.columns.start * width + LETTER * len(bar.low) + 8
        stop = bar.columns.stop * width - LETTER * len(bar.high) - 8
        if stop > start:
            line[4:-4, start:stop] = table(bar.cmap)[np.linspace(0, 255, stop - start).astype(int)]
    return line
