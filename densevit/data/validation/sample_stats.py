"""Statistics of one sample: plain values, computed once and cached between runs."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped, UInt8

from densevit.data.io.arrays import READERS, read_array
from densevit.data.io.images import HEAD, MAX_PIXELS, Raster, detect_format
from densevit.data.io.samples import segments_of
from densevit.data.labels.class_frequencies import pixel_counts
from densevit.errors import DataError
from densevit.structures import IGNORE, Sample

Problem = tuple[str, str, str]
"""Type of the issue, role of the file, and the reason in words."""


@dataclass(frozen=True)
class SampleStats:
    """What the rules need to know of a sample; plain values, so that they can be cached."""

    size: tuple[int, int] | None = None  # h, w of the upright image
    depth_size: tuple[int, int] | None = None  # of the file, where that of the image may differ; None where not read
    white_border: int = 0  # pixels, on its thinnest side
    thumbnail: str = ""  # 16 x 16 gray values, base64
    valid_fraction: float | None = None  # of the pixels, that have depth; None without a depth map
    depth_min: float = 0.0  # metres
    depth_median: float = 0.0
    depth_max: float = 0.0
    depth_top: float = 0.0  # share of the valid pixels that hold the maximum
    depth_below_top: float = 0.0  # the largest value below it; 0 where there is none
    depth_row_correlation: float | None = None  # of depth and row, by rank; None where too few pixels are valid
    non_finite: int = 0  # NaN and infinite values as stored
    negative: int = 0  # values below zero as stored
    labels: tuple[tuple[int, int], ...] | None = None  # class id and its pixels, 255 too; None without a label map
    objects: tuple[int, ...] | None = None  # pixels of each object; None without segments
    hidden: int = 0  # segments without a pixel
    problems: tuple[Problem, ...] = ()

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> "SampleStats":
        """Return the statistics that were stored as JSON."""
        labels = tree["labels"]
        plain = {
            **{name: tuple(tree[name]) if tree[name] else None for name in ("size", "depth_size")},
            "labels": None if labels is None else tuple(map(tuple, labels)),
            "objects": None if tree["objects"] is None else tuple(tree["objects"]),
            "problems": tuple(map(tuple, tree["problems"])),
        }
        return cls(**{**tree, **plain})

    @property
    def largest_label(self) -> int | None:
        """The largest class id except 255; None where there is none."""
        return max((id_ for id_, _ in self.labels or () if id_ != IGNORE), default=None)

    def decoded_thumbnail(self) -> UInt8[np.ndarray, "256"] | None:
        return np.frombuffer(base64.b64decode(self.thumbnail), np.uint8) if self.thumbnail else None


def label_pixels(stats: Iterable[SampleStats]) -> dict[int, int]:
    """Map each class id to its pixels in all label maps together."""
    total: Counter[int] = Counter()
    for one in stats:
        total.update(dict(one.labels or ()))
    return dict(total)


@dataclass(frozen=True)
class InspectedSample:
    """A sample's files, their checksums and its statistics."""

    paths: Mapping[str, Path]
    checksums: Mapping[str, str]  # role -> sha256; roles whose file cannot be read are left out
    stats: SampleStats


THUMBNAIL = 16  # pixels of a side
WHITE = 225  # a JPEG's white is not quite 255
MAX_BORDER = 64  # pixels that are searched for a white border
JPEG_GRAY = 128  # what decoders give where the data of a JPEG end too early: all coefficients are 0
JPEG_BLOCK = 8  # lines of it at least
MIN_PIXELS = 500  # valid pixels that a subsampled depth map needs


def compute_stats(
    sample: Sample, paths: Mapping[str, Path], problems: tuple[Problem, ...] = (), things: Sequence[int] = ()
) -> SampleStats:
    """Return the statistics of a decoded sample. `things`: the classes whose segments are single objects."""
    image = sample.image
    small = cv2.resize(image, (THUMBNAIL, THUMBNAIL), interpolation=cv2.INTER_AREA)
    gray = np.rint(small.mean(axis=2)).astype(np.uint8)
    labels = None
    if sample.labels is not None:
        labels = tuple(zip(*(column.tolist() for column in pixel_counts(sample.labels)), strict=True))
    stats = SampleStats(
        size=(image.shape[0], image.shape[1]),
        white_border=white_border(image),
        thumbnail=base64.b64encode(gray.tobytes()).decode(),
        labels=labels,
        **segment_stats(sample, things),
        problems=problems,
    )
    if sample.depth is None or sample.valid is None:
        return stats
    non_finite, negative = count_invalid_values(paths.get("depth"))
    return replace(stats, **depth_stats(sample.depth), non_finite=non_finite, negative=negative)


def segment_stats(sample: Sample, things: Sequence[int]) -> dict[str, Any]:
    """Return the fields of `SampleStats` about segments; crowds are no objects."""
    segments = segments_of(sample)
    if segments is None:
        return {}
    areas = np.bincount(segments.ids.ravel(), minlength=len(segments.classes) + 1)[1:]
    objects = areas[(areas > 0) & np.isin(segments.classes, list(things)) & ~segments.crowd]
    return {"objects": tuple(objects.tolist()), "hidden": int((areas == 0).sum())}


def depth_stats(depth: Float32[np.ndarray, "h w"]) -> dict[str, Any]:
    """Return the fields of `SampleStats` about valid depth."""
    count = int(np.count_nonzero(depth))
    if not count:
        return {"valid_fraction": 0.0}
    # Every 16th pixel is enough for a median, except of LiDAR, which leaves few.
    few = depth[::4, ::4]
    if np.count_nonzero(few > 0) < MIN_PIXELS:
        few = depth
    rows, _ = np.nonzero(few > 0)
    values = few[few > 0]
    top = depth.max()
    return {
        "valid_fraction": count / depth.size,
        "depth_min": float(depth.min(where=depth > 0, initial=top)),
        "depth_median": float(np.median(values)),
        "depth_max": float(top),
        "depth_top": np.count_nonzero(depth == top) / count,
        "depth_below_top": float(depth.max(where=depth < top, initial=0)),
        "depth_row_correlation": row_correlation(values, rows),
    }


def row_correlation(values: Float32[np.ndarray, " n"], rows: Int64[np.ndarray, " n"]) -> float | None:
    """Return Spearman's rank correlation of depth and row; inverse depth has the opposite sign. None where
    undefined."""
    if len(values) < MIN_PIXELS or rows[0] == rows[-1] or values.min() == values.max():
        return None
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return float(np.corrcoef(ranks, rows)[0, 1])  # rows are in order: ties in them keep their rank's order


def missing_jpeg_lines(image: UInt8[np.ndarray, "h w 3"]) -> int:
    """Return the lines of plain middle gray along one edge: decoders fill in what a truncated JPEG lacks with them.

    Gray bars on two sides were added on purpose, and give 0.
    """
    transposed = image.swapaxes(0, 1)
    gray = [_gray_lines(lines) for lines in (image, image[::-1], transposed, transposed[::-1])]
    return max(gray) if np.count_nonzero(gray) == 1 and max(gray) >= JPEG_BLOCK else 0


def _gray_lines(edge: UInt8[np.ndarray, "lines pixels 3"]) -> int:
    return _leading_true((edge == JPEG_GRAY).all(axis=(1, 2))) if (edge[0] == JPEG_GRAY).all() else 0


def white_border(image: UInt8[np.ndarray, "h w 3"]) -> int:
    """Return the pixels of white all around, on the thinnest side.

    0 for an image that is white throughout.
    """
    transposed = image.swapaxes(0, 1)
    edges = [lines[:MAX_BORDER] for lines in (image, image[::-1], transposed, transposed[::-1])]
    if min(int(edge[0].min()) for edge in edges) < WHITE:
        return 0
    widths = [_leading_true(edge.min(axis=(1, 2)) >= WHITE) for edge in edges]
    return min(widths) if min(widths) < MAX_BORDER else 0


def _leading_true(lines: Bool[np.ndarray, " lines"]) -> int:
    """Return how many are true before the first that is not."""
    return len(lines) if lines.all() else int(np.argmin(lines))


def count_invalid_values(path: Path | None) -> tuple[int, int]:
    """Return how many values of a depth file are NaN or infinite, and how many are negative.

    16-bit integers have neither; formats that only their dataset can read count as without any.
    """
    if path is None:
        return 0, 0
    with open(path, "rb") as file:
        kind = detect_format(file.read(HEAD))
    values: Shaped[np.ndarray, ...]
    try:
        if kind in READERS:
            values = read_array(path, kind, MAX_PIXELS)
        elif kind == "TIFF":
            values = Raster.open(path).stored()
        else:
            return 0, 0
    except DataError:  # a format that only its dataset reads
        return 0, 0
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        return int(values.size - np.count_nonzero(finite)), int(np.count_nonzero(values[finite] < 0))
    return 0, int(np.count_nonzero(values < 0)) if values.dtype.kind == "i" else 0
