"""The interface of every file format for maps, the registry of those for depth, and depth as PNG.

h x w pixels; metric values in metres, affine and disparity values without unit; NaN or infinite where there is none,
in metric maps also 0 and below. Every file is written whole or not at all.
"""

import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from pydantic import Field

from densevit.data.io.writers import encode, to_uint16
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Intrinsics, Lens
from densevit.model_card import HeadSpec, Kind, ModelCard
from densevit.ops.colors import ColorMap, colorize, percentile_range
from densevit.ops.geometry import Matrix
from densevit.ops.segments import SegmentPrediction, segments_of
from densevit.output_kinds import DEPTH_KINDS
from densevit.registry import Registry
from densevit.utils.atomic_io import write_bytes


@dataclass(frozen=True, kw_only=True)
class PredictedMap:
    """The output of a head for one image, and what a file may say of it."""

    values: Float32[np.ndarray, "*k h w"]  # k logits for classes of pixels, 3 components of normals
    image: UInt8[np.ndarray, "h w 3"]  # RGB
    spec: HeadSpec
    camera: Intrinsics | Lens | None = None
    uncertainty: Float32[np.ndarray, "h w"] | None = None  # of depth (densevit.models.heads.depth)
    classes: Float32[np.ndarray, "..."] | None = None  # of the queries of segments, whose masks are the values
    depth: "PredictedMap | None" = None  # of a metric head beside, for formats that ask for it by `beside`

    @cached_property
    def segments(self) -> SegmentPrediction:
        """What the queries of a head of segments are merged into."""
        assert self.classes is not None
        return segments_of("", {"": self.values, "/classes": self.classes}, self.spec)

    def valid(self) -> Bool[np.ndarray, "h w"]:
        if self.spec.kind in ("labels", "normals"):
            return np.asarray(np.isfinite(self.values).all(0))
        depth = self.values[0] if self.values.ndim == 3 else self.values  # the second is a teacher's confidence
        return np.asarray(np.isfinite(depth) & (depth > 0) if self.spec.kind == "metric" else np.isfinite(depth))

    def matrix(self) -> Matrix:
        """Return the intrinsics of the image's camera. Raises DataError if it is not known."""
        h, w = self.values.shape[-2:]
        if self.camera is None:
            raise DataError("no camera is known of this image; give fov or intrinsics.")
        return self.camera.matrix((h, w))


class MapWriter:
    """Writes one format; options are keyword-only."""

    suffix: ClassVar[str]  # is added to the image's name
    kinds: ClassVar[tuple[Kind, ...]] = DEPTH_KINDS  # the heads it is for
    # the heads that it can be made of, where there is none of `kinds`, or another is asked for
    fallback: ClassVar[tuple[Kind, ...]] = ()

    beside: ClassVar[tuple[Kind, ...]] = ()  # the head that it reads, too, where the model has one of these
    needs_beside: ClassVar[bool] = False  # whether the model must have one of these
    uses_camera: ClassVar[bool] = False  # whether it says more of an image whose camera is known

    @property
    def needs_intrinsics(self) -> bool:
        """Whether the camera of every image must be known, whatever the head gives."""
        return False

    @property
    def needs_uncertainty(self) -> bool:
        """Whether the model must predict the uncertainty of the depth, too."""
        return False

    def needs_camera(self, spec: HeadSpec) -> bool:
        """Return whether it needs the camera of every image for what this head gives."""
        return self.needs_intrinsics

    def check(self, spec: HeadSpec) -> None:
        """Raise ConfigError where this format cannot hold what the model gives; called before any work."""

    def write_shared(self, folder: Path, spec: HeadSpec) -> None:
        """Write the files that all images share, as a legend; called once, before the first image."""

    def write_list(self, folder: Path, spec: HeadSpec, paths: Iterable[Path]) -> None:
        """Write the file that lists or joins those of all images; called once, after the last image. `paths`: those
        that are there, in the order of the images."""

    def write(self, path: Path, frame: PredictedMap) -> int:
        """Write the file and return how many valid values the format cannot hold; they are written as not valid."""
        write_bytes(path, self.encode(frame))
        return 0

    def encode(self, frame: PredictedMap) -> bytes:
        """Return the content of the file, of formats that hold all values."""
        raise NotImplementedError


DEPTH_FORMATS = Registry[MapWriter]("format")


def head_of_each_format(writers: Mapping[str, Any], card: ModelCard, requested: Sequence[str]) -> dict[str, str]:
    """Map each format to the head it is written from: the only one of its kind, or the one that is named, or `depth`.
    Raises DataError for no such head, ConfigError for a format that no head or several are for, or a head without a
    format."""
    requested = [card.head(name) for name in requested]
    sources = {}
    for format, writer in writers.items():
        there = any(card.outputs[name].kind in writer.kinds for name in requested or card.outputs)
        kinds = writer.kinds if there else (*writer.kinds, *writer.fallback)
        sources[format] = card.head_for(kinds, requested, f"format {format}")
    if unused := [name for name in requested if name not in sources.values()]:
        raise ConfigError(f"--heads: no format of {', '.join(writers)} is written from {', '.join(unused)}.")
    return sources


LIMIT = 65535  # the largest 16-bit number


@DEPTH_FORMATS.register("png16")
class Png16(MapWriter):
    """16-bit PNG, 0 where there is no value or one that 16 bits do not hold; text chunks say how to read it.

    Metric: stored = depth * `depth_scale`, to the nearest. Affine and disparity: value = stored / `value_scale` +
    `value_offset`, each map spread over the whole range unless a scale is given (then offset 0): another key, so that
    no reader takes them for metres. `depth_kind` and `depth_unit` say which.
    """

    suffix = ".png"

    def __init__(self, *, scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None) -> None:
        self.scale = scale

    def write(self, path: Path, frame: PredictedMap) -> int:
        valid = frame.valid()
        scale, offset = self.coding(frame, valid)
        stored = np.where(valid, to_uint16(frame.values, scale, offset), np.uint16(0))
        write_bytes(path, with_text(encode(".png", stored), self.text(frame.spec, scale, offset)))
        return int((valid & (stored == 0)).sum())

    def coding(self, frame: PredictedMap, valid: Bool[np.ndarray, "h w"]) -> tuple[float, float]:
        """Scale and offset: stored = (value - offset) * scale."""
        if frame.spec.kind == "metric":
            return self.scale or metric_scale(frame.spec), 0.0
        if self.scale or not valid.any():
            return self.scale or 1.0, 0.0
        low, high = float(frame.values[valid].min()), float(frame.values[valid].max())
        scale = (LIMIT - 1) / (high - low) if high > low else 1.0
        return scale, low - 1 / scale

    def text(self, spec: HeadSpec, scale: float, offset: float) -> dict[str, str]:
        text = {"depth_kind": spec.kind}
        if spec.kind == "metric":
            return text | {"depth_scale": f"{scale:.17g}", "depth_unit": spec.unit}
        return text | {"value_scale": f"{scale:.17g}", "value_offset": f"{offset:.17g}"}


def metric_scale(spec: HeadSpec) -> float:
    """Return the field's own scales where the range fits: NYU's 1000 (to 65.5 m), KITTI's 256 (to 255.9 m), else what
    fits."""
    if spec.metres is None:
        return 256.0
    furthest = spec.metres[1]
    fitting = (scale for scale in (1000.0, 256.0) if furthest * scale <= LIMIT)
    return next(fitting, LIMIT / furthest if np.isfinite(furthest) else 256.0)


@DEPTH_FORMATS.register("color")
class Color(MapWriter):
    """8-bit RGB image of the map; without a range, its 2nd to 98th percentile; grey where there is no value."""

    suffix = ".color.png"

    def __init__(self, *, cmap: ColorMap = "turbo", range: tuple[float, float] | None = None) -> None:
        if range is not None and not -math.inf < range[0] < range[1] < math.inf:
            raise ConfigError(f"format color: range is low, high with low < high, got {range}.")
        self.cmap = cmap
        self.range = range

    def encode(self, frame: PredictedMap) -> bytes:
        values = np.where(frame.valid(), frame.values, np.float32(np.nan))
        low, high = self.range or percentile_range(values)
        return encode(".png", colorize(values, low, high, self.cmap))


def with_text(content: bytes, text: Mapping[str, str]) -> bytes:
    """Return a PNG with text chunks. OpenCV cannot write those, but it encodes six times as fast as Pillow."""
    header = 33  # signature and IHDR, which must come first
    bodies = [b"tEXt" + key.encode("latin-1") + b"\0" + value.encode("latin-1") for key, value in text.items()]
    # A chunk: length, type, content, CRC (PNG specification, 11.3.3.2).
    chunks = b"".join(struct.pack(">I", len(b) - 4) + b + struct.pack(">I", zlib.crc32(b)) for b in bodies)
    return content[:header] + chunks + content[header:]
