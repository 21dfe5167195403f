"""What is seen of one sample: plain values, measured once and kept between runs."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped, UInt8

from densevit.data.io.arrays import READERS, read_array
from densevit.data.io.images import HEAD, MAX_PIXELS, Raster, sniff
from densevit.data.labels.class_frequencies import pixel_counts
from densevit.errors import DataError
from densevit.structures import IGNORE, Sample

Problem = tuple[str, str, str]
"""Kind of a finding, the file's role, and the reason in words."""


@dataclass(frozen=True)
class Look:
    """What was seen of a sample; plain values, so that it can be kept."""

    size: tuple[int, int] | None = None  # h, w of the upright image
    border: int = 0  # pixels of a white frame, on its thinnest side
    thumbnail: str = ""  # 16 x 16 gray values, base64
    share: float | None = None  # of pixels with depth; None without a depth map
    low: float = 0.0  # metres
    median: float = 0.0
    high: float = 0.0
    unknown: int = 0  # NaN and infinite values as stored
    negative: int = 0  # values below zero as stored
    labels: tuple[tuple[int, int], ...] | None = None  # class id and its pixels, 255 too; None without a label map
    problems: tuple[Problem, ...] = ()

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "Look":
        """A look that was kept as JSON."""
        size, labels = tree["size"], tree["labels"]
        plain = {
            "size": tuple(size) if size else None,
            "labels": None if labels is None else tuple(map(tuple, labels)),
            "problems": tuple(map(tuple, tree["problems"])),
        }
        return cls(**{**tree, **plain})

    @property
    def largest_label(self) -> int | None:
        """255 apart; None where there is no other."""
        return max((id_ for id_, _ in self.labels or () if id_ != IGNORE), default=None)

    def thumb(self) -> UInt8[np.ndarray, "256"] | None:
        return np.frombuffer(base64.b64decode(self.thumbnail), np.uint8) if self.thumbnail else None


def label_pixels(looks: Iterable[Look]) -> dict[int, int]:
    """Class id -> its pixels in all label maps together."""
    total: Counter[int] = Counter()
    for look in looks:
        total.update(dict(look.labels or ()))
    return dict(total)


@dataclass(frozen=True)
class Seen:
    """A sample's files and the look at them."""

    paths: Mapping[str, Path]
    sums: Mapping[str, str]  # role -> sha256; roles whose file cannot be read are left out
    look: Look


THUMB = 16  # pixels of a side
WHITE = 225  # a JPEG's white is not quite 255
FRAME = 64  # pixels to look for a white frame at most
LOST = 128  # gray that decoders give where the data of a JPEG end too early: all coefficients are 0
BLOCK = 8  # lines of it at least


def measure(sample: Sample, paths: Mapping[str, Path], problems: tuple[Problem, ...] = ()) -> Look:
    """The numbers that judgement needs."""
    image = sample.image
    small = cv2.resize(image, (THUMB, THUMB), interpolation=cv2.INTER_AREA)
    gray = np.rint(small.mean(axis=2)).astype(np.uint8)
    look = Look(
        size=(image.shape[0], image.shape[1]),
        border=white_border(image),
        thumbnail=base64.b64encode(gray.tobytes()).decode(),
        labels=None if sample.labels is None else counted(sample.labels),
        problems=problems,
    )
    if sample.depth is None or sample.valid is None:
        return look
    unknown, negative = stored_oddities(paths.get("depth"))
    share, low, median, high = _spread(sample.depth)
    return replace(look, share=share, low=low, median=median, high=high, unknown=unknown, negative=negative)


def _spread(depth: Float32[np.ndarray, "h w"]) -> tuple[float, float, float, float]:
    """Share of pixels with depth, and its least, middle and largest value."""
    count = int(np.count_nonzero(depth))
    if not count:
        return 0.0, 0.0, 0.0, 0.0
    # Every 16th pixel is plenty for a median, except of LiDAR, which leaves few.
    few = depth[::4, ::4].ravel()
    values = few[few > 0]
    if values.size < 500:
        values = depth[depth > 0]
    return count / depth.size, float(values.min()), float(np.median(values)), float(depth.max())


def counted(labels: Int64[np.ndarray, "h w"]) -> tuple[tuple[int, int], ...]:
    """Class ids that occur, each with its pixels."""
    ids, counts = pixel_counts(labels)
    return tuple(zip(ids.tolist(), counts.tolist(), strict=True))


def lost_lines(image: UInt8[np.ndarray, "h w 3"]) -> int:
    """Lines of plain middle gray along one edge alone, the last as stored: what is left of a JPEG with a hole in it.

    Bars that somebody added come on two sides.
    """
    turned = image.swapaxes(0, 1)
    gray = [_gray(lines) for lines in (image, image[::-1], turned, turned[::-1])]
    return max(gray) if np.count_nonzero(gray) == 1 and max(gray) >= BLOCK else 0


def _gray(edge: UInt8[np.ndarray, "lines pixels 3"]) -> int:
    return _leading((edge == LOST).all(axis=(1, 2))) if (edge[0] == LOST).all() else 0


def white_border(image: UInt8[np.ndarray, "h w 3"]) -> int:
    """Pixels of white all around, on the thinnest side.

    0 for a picture that is white throughout.
    """
    turned = image.swapaxes(0, 1)
    edges = [lines[:FRAME] for lines in (image, image[::-1], turned, turned[::-1])]
    if min(int(edge[0].min()) for edge in edges) < WHITE:
        return 0
    widths = [_leading(edge.min(axis=(1, 2)) >= WHITE) for edge in edges]
    return min(widths) if min(widths) < FRAME else 0


def _leading(lines: Bool[np.ndarray, " lines"]) -> int:
    """How many hold, from the first on."""
    return len(lines) if lines.all() else int(np.argmin(lines))


def stored_oddities(path: Path | None) -> tuple[int, int]:
    """How many values of a depth file are unknown (NaN, infinite), and how many below zero.

    16-bit integers have neither; formats that only their data set can read are not looked into.
    """
    if path is None:
        return 0, 0
    with open(path, "rb") as file:
        kind = sniff(file.read(HEAD))
    values: Shaped[np.ndarray, ...]
    try:
        if kind in READERS:
            values = read_array(path, kind, MAX_PIXELS)
        elif kind == "TIFF":
            values = Raster.open(path).stored()
        else:
            return 0, 0
    except DataError:  # its data set has read it; how, it alone knows
        return 0, 0
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        return int(values.size - np.count_nonzero(known)), int(np.count_nonzero(values[known] < 0))
    return 0, int(np.count_nonzero(values < 0)) if values.dtype.kind == "i" else 0
