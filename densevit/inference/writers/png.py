"""Depth maps as PNG: 16-bit numbers that can be read back, and colours."""

import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from densevit.data.io.writers import encode, to_uint16
from densevit.errors import ConfigError
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.colors import ColorMap, colorize, percentile_range
from densevit.utils.atomic_io import write_bytes

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
    """The field's own scales where the range fits: NYU's 1000 (to 65.5 m), KITTI's 256 (to 255.9 m), else what fits."""
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

    def write(self, path: Path, frame: PredictedMap) -> int:
        values = np.where(frame.valid(), frame.values, np.float32(np.nan))
        low, high = self.range or percentile_range(values)
        pixels = colorize(values, low, high, self.cmap)
        write_bytes(path, encode(".png", pixels))
        return 0


def with_text(content: bytes, text: Mapping[str, str]) -> bytes:
    """A PNG with text chunks. OpenCV cannot write those, but it encodes six times as fast as Pillow."""
    header = 33  # signature and IHDR, which must come first
    chunks = b"".join(text_chunk(key, value) for key, value in text.items())
    return content[:header] + chunks + content[header:]


def text_chunk(key: str, value: str) -> bytes:
    """A tEXt chunk: length, type, content, CRC (PNG specification, 11.3.3.2)."""
    body = b"tEXt" + key.encode("latin-1") + b"\0" + value.encode("latin-1")
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
