"""COCO's files: annotations as JSON, masks as run lengths or polygons, panoptic maps as PNG. h x w pixels.

cocodataset.org/#format-data; run lengths go column by column and begin with the pixels outside. The compressed text has
five bits a character, and from the fourth run on the difference to the one two before.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer

from densevit.data.io.readers import read_stored_labels
from densevit.data.io.writers import encode
from densevit.errors import DataError
from densevit.structures import Size
from densevit.utils.json_files import read_json

T = TypeVar("T", int, float, str)
NOUNS = {int: "a whole number", float: "a number", str: "a text"}
BASE = np.array([1, 256, 65536])  # of R, G and B in the number of a segment
FIFTHS = 5  # of a pixel, in which outlines of polygons are walked
OUTSIDE = 0.01  # of the image's sides, that corners may lie beyond them


def read_annotations(path: Path) -> Mapping[str, Any]:
    """Raise DataError: no JSON, or without images, annotations and categories."""
    tree = read_json(path)
    keys = ("images", "annotations", "categories")
    if not isinstance(tree, dict) or not all(isinstance(tree.get(key), list) for key in keys):
        raise DataError(f"{path}: no COCO annotations; these have lists of {', '.join(keys)}.")
    if empty := [key for key in keys if not tree[key]]:
        raise DataError(f"{path}: `{empty[0]}` is empty.")
    return tree


def field(entry: Any, key: str, kind: type[T], what: str) -> T:
    """Return a value of an image, an annotation or a category. Raises DataError, which begins with `what` and the
    entry's id: it is missing, or of another kind."""
    value: Any = entry.get(key) if isinstance(entry, dict) else None
    try:
        converted = kind(value)
        if value is None or value == "" or (isinstance(converted, float) and not math.isfinite(converted)):
            raise ValueError
        if isinstance(value, float) and converted not in (value, str(value)):
            raise ValueError  # int(3.5)
        return converted
    except (TypeError, ValueError, OverflowError):
        fault = "is missing" if value in (None, "") else f"is {repr(value)[:40]}, not {NOUNS[kind]}"
        named = entry.get("id", "without an id") if isinstance(entry, dict) else repr(entry)[:40]
        raise DataError(f"{what} {named}: `{key}` {fault}.") from None


def read_panoptic_ids(path: Path) -> Int64[np.ndarray, "h w"]:
    """Return the numbers of the segments in a panoptic PNG. Raises DataError if it is not there, or has no colours."""
    pixels = read_stored_labels(path).pixels
    if pixels.ndim != 3:
        raise DataError(f"{path}: a panoptic PNG is RGB; this one has one channel.")
    return np.asarray(pixels.astype(np.int64) @ BASE)


def encode_panoptic_ids(ids: Integer[np.ndarray, "h w"]) -> bytes:
    """Return the panoptic PNG of numbers of segments."""
    return encode(".png", (ids[..., None] // BASE % 256).astype(np.uint8))


def mask_of(segmentation: Any, size: Size, what: str) -> Bool[np.ndarray, "h w"]:
    """Raise DataError, which begins with `what`: neither polygons nor run lengths, or not of an image of this size."""
    h, w = size
    if segmentation == []:
        raise DataError(f"{what}: `segmentation` is empty, as of a box; outlines or run lengths are needed.")
    if isinstance(segmentation, list):
        masks = [fill_polygon(_corners(outline, size, what), size) for outline in segmentation]
        return np.asarray(np.logical_or.reduce(masks))
    if not isinstance(segmentation, dict) or not {"size", "counts"} <= segmentation.keys():
        raise DataError(f"{what}: `segmentation` is neither polygons nor run lengths with size and counts.")
    if segmentation["size"] not in ([h, w], size):
        raise DataError(f"{what}: run lengths of size {segmentation['size']}, but the image has [{h}, {w}].")
    counts = segmentation["counts"]
    runs = decode_counts(counts) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(isinstance(run, int) and run >= 0 for run in runs):
        raise DataError(f"{what}: `counts` of run lengths are whole numbers from 0 on, or their compressed text.")
    if sum(runs) != h * w:
        raise DataError(f"{what}: run lengths of {sum(runs):,} pixels, but the image has {h * w:,}.")
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return np.asarray(flat.reshape(w, h).T)


def fill_polygon(corners: Float64[np.ndarray, "n 2"], size: Size) -> Bool[np.ndarray, "h w"]:
    """Return the pixels inside of a polygon of corners x, y, exactly as COCO's tools fill it.

    They walk its outline in fifths of a pixel, and note where it crosses the middle of a column; between two crossings
    of a column lie the pixels inside.
    """
    h, w = size
    fine = np.trunc(FIFTHS * corners + 0.5).astype(np.int64)
    start, end = fine, np.roll(fine, -1, 0)
    length = np.abs(end - start)
    along_x = length[:, 0] >= length[:, 1]
    steps = length.max(1)
    main, other = np.where(along_x, 0, 1), np.where(along_x, 1, 0)
    edges = np.arange(len(fine))
    swapped = start[edges, main] > end[edges, main]
    low, high = np.where(swapped[:, None], end, start), np.where(swapped[:, None], start, end)
    slope = (high[edges, other] - low[edges, other]) / np.maximum(steps, 1)
    edge = np.repeat(edges, steps + 1)
    t = np.arange(len(edge)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    t = np.where(swapped[edge], steps[edge] - t, t)
    on_main = low[edge, main[edge]] + t
    on_other = np.trunc(low[edge, other[edge]] + slope[edge] * t + 0.5).astype(np.int64)
    x, y = np.where(along_x[edge], on_main, on_other), np.where(along_x[edge], on_other, on_main)
    moved = np.flatnonzero(x[1:] != x[:-1])
    column = (np.where(x[moved + 1] < x[moved], x[moved + 1], x[moved + 1] - 1) + 0.5) / FIFTHS - 0.5
    row = np.ceil(np.clip((np.minimum(y[moved + 1], y[moved]) + 0.5) / FIFTHS - 0.5, 0, h))
    crossed = (column % 1 == 0) & (column >= 0) & (column <= w - 1)
    crossings = np.bincount((column[crossed] * h + row[crossed]).astype(np.int64), minlength=h * w)[: h * w]
    return np.asarray((np.cumsum(crossings) % 2 == 1).reshape(w, h).T)


def _corners(outline: Any, size: Size, what: str) -> np.ndarray:
    """Return the corners x, y of a polygon."""
    whole = isinstance(outline, list) and all(type(x) in (int, float) and abs(x) < math.inf for x in outline)
    if not whole or len(outline) < 6 or len(outline) % 2:
        raise DataError(f"{what}: a polygon is a list [x, y, x, y, ...] of three corners or more.")
    corners = np.array(outline, np.float64).reshape(-1, 2)
    sides = np.array(size[::-1])
    if (corners < -OUTSIDE * sides - 1).any() or (corners > (1 + OUTSIDE) * sides + 1).any():
        x, y = corners[np.abs(corners / sides - 0.5).max(1).argmax()]
        raise DataError(f"{what}: a polygon has a corner at ({x:g}, {y:g}), outside of {size[1]} x {size[0]} (w x h).")
    return corners


def encode_mask(mask: Bool[np.ndarray, "h w"]) -> dict[str, Any]:
    """Return the run lengths of a mask, compressed."""
    edges = np.flatnonzero(np.diff(mask.T.ravel(), prepend=False))
    return {"size": list(mask.shape), "counts": encode_counts(np.diff([0, *edges, mask.size]).tolist())}


def encode_counts(runs: Sequence[int]) -> str:
    """Return the compressed text of run lengths."""
    text = ""
    for i, run in enumerate(runs):
        value, more = run - (runs[i - 2] if i > 2 else 0), True
        while more:
            bits, value = value & 31, value >> 5
            more = value != (-1 if bits & 16 else 0)
            text += chr(48 + bits + 32 * more)
    return text


def decode_counts(text: str) -> list[int]:
    """Return run lengths from their compressed text."""
    runs: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:  # negative
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return runs
