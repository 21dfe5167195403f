"""Depth maps as a lossless video: 16-bit gray FFV1 in Matroska (extra `densevit[video]`). h x w pixels.

0 is no value; else value = stored / scale + offset, with both in the file's metadata, beside kind and unit. Times are
rounded to 1 ms, which is Matroska's. FFmpeg, OpenCV and players read it as 16-bit gray.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt16

from densevit.data.io.video import first_video_stream, open_container, require_av, seconds
from densevit.data.io.writers import to_uint16
from densevit.errors import DataError

MILLISECOND = Fraction(1, 1000)
BITEXACT = {"fflags": "+bitexact"}  # no random identifiers: the same frames give the same bytes
PREFIX = "DENSEVIT_"


@dataclass(frozen=True)
class Coding:
    """What stored numbers mean: value = stored / scale + offset."""

    scale: float
    offset: float = 0.0
    kind: str = "metric"  # metric, affine or disparity
    unit: str = "m"  # of metric depth

    def encode(self, values: Float32[np.ndarray, "h w"]) -> UInt16[np.ndarray, "h w"]:
        """Round to the nearest; 0 for what is not finite or does not fit."""
        return to_uint16(np.where(np.isfinite(values), values, np.float32(self.offset)), self.scale, self.offset)

    def decode(self, stored: UInt16[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
        """Return the values; NaN where there is none."""
        values = (stored / self.scale + self.offset).astype(np.float32)
        values[stored == 0] = np.nan
        return values

    def metadata(self) -> dict[str, str]:
        return {
            PREFIX + key.upper(): value if isinstance(value, str) else f"{value:.17g}"
            for key, value in vars(self).items()
        }

    @classmethod
    def of(cls, container: Any, path: Path) -> "Coding":
        """Raise DataError if the file does not say."""
        tags = {key.upper().removeprefix(PREFIX).lower(): value for key, value in container.metadata.items()}
        try:
            return cls(float(tags["scale"]), float(tags["offset"]), tags["kind"], tags["unit"])
        except (KeyError, ValueError):
            raise DataError(f"{path}: is no depth video of densevit; its metadata names no scale and offset.") from None


@dataclass(frozen=True, eq=False)
class DepthFrame:
    """One map of a depth video."""

    time: float  # seconds
    values: Float32[np.ndarray, "h w"]  # metres, or numbers without unit by `kind`; NaN where there is none
    kind: str


def read_depth_video(path: str | Path) -> Iterator[DepthFrame]:
    """Yield the maps of a depth video, one after another. Raises DataError if it cannot be read, or is no depth
    video."""
    path = Path(path)
    with open_container(path) as container:
        coding = Coding.of(container, path)
        for time, stored in stored_maps(container, path):
            yield DepthFrame(time, coding.decode(stored), coding.kind)


def stored_maps(container: Any, path: Path, every: int = 1) -> Iterator[tuple[float, UInt16[np.ndarray, "h w"]]]:
    """Yield the seconds and stored numbers of an open file. `every`: decodes each n-th map only: FFV1 has no frames
    that need others."""
    stream = first_video_stream(container, path)
    for number, packet in enumerate(container.demux(stream)):
        if packet.size and number % every:
            continue
        for frame in packet.decode():
            time = float(frame.pts * frame.time_base) if frame.pts is not None else seconds(frame, stream, number)
            yield time, frame.to_ndarray()


class DepthVideoWriter:
    """Writes stored maps of one size; to be used in a `with` block."""

    def __init__(self, path: Path, size: tuple[int, int], coding: Coding) -> None:
        self.coding = coding
        self.container = require_av().open(str(path), "w", format="matroska", options=BITEXACT)
        self.container.metadata.update(coding.metadata())
        self.stream = self.container.add_stream("ffv1", rate=30)
        self.stream.height, self.stream.width = size
        self.stream.pix_fmt = "gray16le"
        self.stream.time_base = self.stream.codec_context.time_base = MILLISECOND
        self.stream.options = {"level": "3", "slicecrc": "1", "flags": "+bitexact"}
        self.stream.codec_context.thread_count = 1

    def add(self, stored: UInt16[np.ndarray, "h w"], time: float) -> None:
        frame = require_av().VideoFrame.from_ndarray(np.ascontiguousarray(stored), format="gray16le")
        frame.pts, frame.time_base = round(time * 1000), MILLISECOND
        self.container.mux(self.stream.encode(frame))

    def __enter__(self) -> "DepthVideoWriter":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: TracebackType | BaseException | None) -> None:
        try:
            if error is None:
                self.container.mux(self.stream.encode(None))
        finally:
            self.container.close()


def join_depth_videos(videos: Sequence[Path], path: Path) -> None:
    """Write one depth video out of several of one size and coding, without decoding them."""
    av = require_av()
    with av.open(str(path), "w", format="matroska", options=BITEXACT) as out:
        stream = None
        for video in videos:
            with open_container(video) as container:
                source = first_video_stream(container, video)
                if stream is None:
                    out.metadata.update(
                        {k.upper(): v for k, v in container.metadata.items() if k.upper().startswith(PREFIX)}
                    )
                    stream = out.add_stream_from_template(source)
                    stream.time_base = MILLISECOND
                for packet in container.demux(source):
                    if packet.size:
                        packet.stream = stream
                        out.mux(packet)
