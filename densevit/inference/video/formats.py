"""File formats of whole clips: videos, and all maps of a clip in one file. n maps of h x w pixels.

A clip is written in segments of a few frames, each of them whole or absent, so that an interrupted export goes on
where it stood; at the end the segments are joined into the file.
"""

import io
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import ClassVar, Literal

import cv2
import numpy as np
from jaxtyping import Float64, UInt8, UInt16

from densevit.data.io.depth_video import (
    BITEXACT,
    Coding,
    DepthVideoWriter,
    join_depth_videos,
    stored_maps,
)
from densevit.data.io.video import open_container, require_av
from densevit.errors import ConfigError
from densevit.inference.writers.arrays import attributes
from densevit.inference.writers.base import LIMIT, PredictedMap, metric_scale
from densevit.model_card import HeadSpec, Kind
from densevit.ops.colors import UNKNOWN, ColorMap, table
from densevit.output_kinds import DEPTH_KINDS
from densevit.registry import Registry

Encoding = Literal["depth16", "float32"]
"""How the segments of a format are stored: 16-bit FFV1, or the maps as the model gave them."""

SUFFIX: dict[Encoding, str] = {"depth16": ".mkv", "float32": ".f32"}
HEADROOM = 4  # of 16 bits, in ranges of the first frame: what relative maps may still grow by
CLOCK = 90_000  # ticks a second, as is usual in MP4
SAMPLED = 8  # every n-th frame counts for the range of a clip's colours


@dataclass(frozen=True)
class ClipFacts:
    """What the joined file may say."""

    spec: HeadSpec
    size: tuple[int, int]  # h, w of the maps
    times: Float64[np.ndarray, " n"]  # seconds of each frame
    rate: float  # mean frames per second


class ClipFormat(ABC):
    """A file of all maps of a clip; options are keyword-only."""

    suffix: ClassVar[str]  # is added to the clip's name
    encoding: ClassVar[Encoding]  # of its segments
    kinds: ClassVar[tuple[Kind, ...]] = DEPTH_KINDS  # the heads it is for
    fallback: ClassVar[tuple[Kind, ...]] = ()

    @abstractmethod
    def join(self, segments: Sequence[Path], path: Path, clip: ClipFacts) -> None:
        """Write the file; `path` is a temporary one that is moved into place."""


CLIP_FORMATS = Registry[ClipFormat]("format")


@CLIP_FORMATS.register("ffv1")
class Ffv1(ClipFormat):
    """Lossless 16-bit video in Matroska; read it back by densevit.data.io.depth_video.read_depth_video."""

    suffix = ".depth.mkv"
    encoding = "depth16"

    def __init__(self, *, scale: float | None = None) -> None:
        """
        Args:
            scale: stored units per metre; None takes 1000 where the model's range fits, as for `png16`.
        """
        if scale is not None and not 0 < scale < inf:
            raise ConfigError(f"format ffv1: scale is {scale}; it is a number over 0.")
        self.scale = scale

    def join(self, segments: Sequence[Path], path: Path, clip: ClipFacts) -> None:
        join_depth_videos(segments, path)


@CLIP_FORMATS.register("mp4")
class Mp4(ClipFormat):
    """H.264 video in colours, one range for the whole clip: its 2nd to 98th percentile, or the one that is given.

    The file's comment says the colour map, the range and the unit.
    """

    suffix = ".color.mp4"
    encoding = "depth16"

    def __init__(self, *, cmap: ColorMap = "turbo", range: tuple[float, float] | None = None) -> None:
        if range is not None and not -inf < range[0] < range[1] < inf:
            raise ConfigError(f"format mp4: range is low, high with low < high, got {range}.")
        self.cmap = cmap
        self.range = range

    def join(self, segments: Sequence[Path], path: Path, clip: ClipFacts) -> None:
        with open_container(segments[0]) as container:
            coding = Coding.of(container, segments[0])
        low, high = self.range or clip_range(segments, coding)
        colors = stored_colors(coding, low, high, self.cmap)
        comment = f"{self.cmap}: {low:.3g} to {high:.3g} {coding.unit}".strip()
        write_mp4(path, ((time, colors[stored]) for time, stored in maps_of(segments)), clip, comment)


def write_mp4(path: Path, frames: Iterator[tuple[float, np.ndarray]], clip: ClipFacts, comment: str) -> None:
    """Write frames in RGB as H.264 with their times; odd sides lose their last row or column, for 4:2:0 has none."""
    av = require_av()
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"  # not every build of FFmpeg has x264
    tick = Fraction(1, CLOCK)
    h, w = (max(2, side - side % 2) for side in clip.size)
    with av.open(str(path), "w", format="mp4", options=BITEXACT) as out:
        out.metadata["comment"] = comment  # what the colours mean
        stream = out.add_stream(codec, rate=Fraction(clip.rate).limit_denominator(1001))
        stream.height, stream.width, stream.pix_fmt = h, w, "yuv420p"
        stream.time_base = stream.codec_context.time_base = tick
        # x264's macroblock tree reads memory that nothing has written: two runs would differ.
        fixed = {"crf": "17", "preset": "veryfast", "x264-params": "mbtree=0"}
        quality = fixed if codec == "libx264" else {"q:v": "2"}
        stream.options = {**quality, "flags": "+bitexact"}
        stream.codec_context.thread_count = 1  # the same bytes on every machine
        last = -1
        for time, pixels in frames:
            yuv = cv2.cvtColor(np.ascontiguousarray(pixels[:h, :w]), cv2.COLOR_RGB2YUV_I420)
            frame = av.VideoFrame.from_ndarray(yuv, format="yuv420p")
            last = max(last + 1, round(time * CLOCK))
            frame.pts, frame.time_base = last, tick
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


def maps_of(segments: Sequence[Path], every: int = 1) -> Iterator[tuple[float, UInt16[np.ndarray, "h w"]]]:
    for segment in segments:
        with open_container(segment) as container:
            yield from stored_maps(container, segment, every)


def clip_range(segments: Sequence[Path], coding: Coding) -> tuple[float, float]:
    """Return the 2nd and 98th percentile of the values of every SAMPLED-th frame; 0 and 1 where there are none."""
    counts = np.zeros(LIMIT + 1, np.int64)
    for _, stored in maps_of(segments, SAMPLED):
        counts += np.bincount(stored[::2, ::2].ravel(), minlength=LIMIT + 1)
    counts[0] = 0
    if not counts.any():
        return 0.0, 1.0
    under = np.cumsum(counts) / counts.sum()
    low, high = (int(np.searchsorted(under, share)) for share in (0.02, 0.98))
    return low / coding.scale + coding.offset, max(high, low + 1) / coding.scale + coding.offset


def stored_colors(coding: Coding, low: float, high: float, cmap: str) -> UInt8[np.ndarray, "65536 3"]:
    """Return the colour of each stored number; grey for 0."""
    values = np.arange(LIMIT + 1) / coding.scale + coding.offset
    shares = ((values - low) / (high - low)).clip(0, 1)
    colors: UInt8[np.ndarray, "65536 3"] = table(cmap)[np.rint(255 * shares).astype(np.intp)]
    colors[0] = UNKNOWN
    return colors


@CLIP_FORMATS.register("npz_clip")
class NpzClip(ClipFormat):
    """Compressed NumPy archive: `depth`, float32 n h w, and `time`, seconds."""

    suffix = ".depth.npz"
    encoding = "float32"

    def join(self, segments: Sequence[Path], path: Path, clip: ClipFacts) -> None:
        header = io.BytesIO()
        shape = (len(clip.times), *clip.size)
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        times = io.BytesIO()
        np.save(times, clip.times)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1, allowZip64=True) as archive:
            archive.writestr(zip_entry("time.npy"), times.getvalue())
            with archive.open(zip_entry("depth.npy"), "w", force_zip64=True) as file:
                file.write(header.getvalue())
                for segment in segments:
                    with open(segment, "rb") as stored:
                        while block := stored.read(1 << 22):
                            file.write(block)


def zip_entry(name: str) -> zipfile.ZipInfo:
    """Return an entry with a date that is always the same, for the same bytes."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


@CLIP_FORMATS.register("h5_clip")
class Hdf5Clip(ClipFormat):
    """HDF5: `depth`, float32 n h w (a frame a chunk, gzip, checksums; kind, unit, range), and `time`, seconds."""

    suffix = ".depth.h5"
    encoding = "float32"

    def join(self, segments: Sequence[Path], path: Path, clip: ClipFacts) -> None:
        import h5py

        h, w = clip.size
        with h5py.File(path, "w") as file:
            file.create_dataset("time", data=clip.times, track_times=False)
            data = file.create_dataset(
                "depth", (len(clip.times), h, w), "<f4", chunks=(1, h, w), compression="gzip", compression_opts=1,
                shuffle=True, fletcher32=True, track_times=False,
            )  # fmt: skip
            data.attrs.update(attributes(clip.spec))
            position = 0
            for segment in segments:
                with open(segment, "rb") as stored:
                    while block := stored.read(4 * h * w):
                        data[position] = np.frombuffer(block, "<f4").reshape(h, w)
                        position += 1


class FloatSegment:
    """Maps of float32, one behind the other."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "wb")  # noqa: SIM115
        self.close = self.file.close

    def write(self, frame: PredictedMap, time: float) -> int:
        self.file.write(np.where(frame.valid(), frame.values, np.float32(np.nan)).astype("<f4").tobytes())
        return 0


class Depth16Segment(DepthVideoWriter):
    """Maps as 16-bit FFV1; to be used in a `with` block."""

    def write(self, frame: PredictedMap, time: float) -> int:
        """Return how many valid values 16 bits do not hold; they are written as not valid."""
        valid = frame.valid()
        stored = np.where(valid, self.coding.encode(frame.values), np.uint16(0))
        self.add(stored, time)
        return int((valid & (stored == 0)).sum())


def coding_for(frame: PredictedMap, scale: float | None) -> Coding:
    """Return how a clip is stored whose first map this is.

    Metric: `scale` units per metre, by default as `png16`. Others: the first map's range takes a quarter of the
    numbers, so that later maps may be lower and higher.
    """
    spec = frame.spec
    if spec.kind == "metric":
        return Coding(scale or metric_scale(spec), 0.0, spec.kind, spec.unit)
    values = frame.values[frame.valid()]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    scale = scale or (LIMIT / HEADROOM / (high - low) if high > low else 1.0)
    return Coding(scale, low - LIMIT / HEADROOM / scale, spec.kind, "")
