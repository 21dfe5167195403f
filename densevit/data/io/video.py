"""Video files, folders of frames and cameras as streams of RGB frames with their times (extra `densevit[video]`).

h x w pixels; seconds since the first frame of the file. Frames are upright: the rotation that a phone notes in its file
is applied, and pixels that are not square (anamorphic video) become so, as in a player.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from math import ceil, floor
from pathlib import Path
from threading import Condition, Thread
from time import perf_counter
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.data.index.matching import IMAGE_SUFFIXES
from densevit.data.index.paths import tell_apart
from densevit.data.io.readers import read_image
from densevit.errors import ConfigError, DataError
from densevit.utils.atomic_io import sha256

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".wmv", ".flv"}
    | {".3gp", ".ogv", ".y4m", ".mxf"}
)
FORMATS = "mov,matroska,webm,avi,mpeg,mpegts,mpegvideo,m4v,asf,flv,ogg,yuv4mpegpipe,mxf"
"""Demuxers of FFmpeg; none of a playlist (HLS, DASH, concat), which would open the files that it names."""
CAMERA = "camera:"
MISSING = 0.5  # seconds by which a file may be shorter than it says
SILENCE = 10.0  # seconds without a frame after which a camera counts as gone


@dataclass(frozen=True, eq=False)
class VideoFrame:
    """One frame."""

    index: int  # its position among the frames that were asked for
    time: float  # seconds since the first frame of the file, exact for variable frame rates, too
    image: UInt8[np.ndarray, "h w 3"]
    name: str = ""  # of the file of a folder's frame, without suffix; empty otherwise


@dataclass(frozen=True)
class TimeSpan:
    """The part of a video to read: from `start` to `end` seconds, both included, and of it every n-th frame.

    Raises:
        ConfigError: numbers that make no span.
    """

    start: float = 0.0
    end: float | None = None
    every: int = 1

    def __post_init__(self) -> None:
        if not (self.start >= 0 and self.every >= 1 and (self.end is None or self.end >= self.start)):
            raise ConfigError(
                f"start {self.start:g}, end {self.end}, every {self.every}: seconds are 0 <= start <= end, and every "
                "is 1 or more."
            )


class VideoSource(ABC):
    """A stream of frames."""

    # what could not be read so far, in words; the frames that could be read were given nevertheless
    problems: list[str]

    @abstractmethod
    def rate(self) -> float:
        """Return the mean frames per second. Raises DataError if it cannot be opened, or holds no video."""

    @abstractmethod
    def frames(self, span: TimeSpan = TimeSpan(), *, skip: int = 0) -> Iterator[VideoFrame]:
        """Return the frames in order of time, decoded one by one. The first `skip` frames of the span are passed over;
        indices and times count them. Raises DataError if it cannot be opened, or holds no video."""

    def length(self, span: TimeSpan = TimeSpan()) -> int | None:
        """Return how many frames there should be, for a progress bar; None if unknown."""
        return None

    def digest(self) -> str:
        """Return a hash of its files; that of a camera is empty."""
        return ""


@dataclass
class VideoFile(VideoSource):
    """A file that FFmpeg decodes, of any bit depth and frame rate."""

    path: Path
    problems: list[str] = field(default_factory=list)

    def frames(self, span: TimeSpan = TimeSpan(), *, skip: int = 0) -> Iterator[VideoFrame]:
        self.problems.clear()
        av = require_av()
        with open_container(self.path) as container:
            stream = first_video_stream(container, self.path)
            stream.thread_type = "AUTO"
            if span.start > 0 and not lacks_times(container, stream):
                origin = stream.start_time or 0
                container.seek(origin + int(span.start / stream.time_base), stream=stream)  # the key frame before
            yield from self._select(self._decode(av, container, stream, span.start == 0), stream, span, skip)

    def digest(self) -> str:
        return file_digest(self.path)

    def length(self, span: TimeSpan = TimeSpan()) -> int | None:
        try:
            with open_container(self.path) as container:
                stream = first_video_stream(container, self.path)
                rate = float(stream.average_rate or 0)
                duration = float(stream.duration * stream.time_base) if stream.duration else 0.0
                total = stream.frames or round(rate * duration)
        except DataError:
            return None
        if not total:
            return None
        if (span.start or span.end is not None) and rate:
            first = ceil(span.start * rate - 1e-6)
            last = total - 1 if span.end is None else min(total - 1, floor(span.end * rate + 1e-6))
            total = max(0, last - first + 1)
        return -(-total // span.every)

    def rate(self) -> float:
        """Return frames per second; of a file that does not say, 30."""
        with open_container(self.path) as container:
            return float(first_video_stream(container, self.path).average_rate or 30)

    def _decode(self, av: Any, container: Any, stream: Any, whole: bool) -> Iterator[Any]:
        """Yield the decoded frames; packets that cannot be decoded are noted and skipped. `whole`: from the first frame
        on."""
        last, seen, listed = 0.0, 0, stream.frames
        shown, promised = 0.0, promised_length(container, stream)  # seconds: of the last frame, and of all
        complete = True
        packets, times = container.demux(stream), deque[int]()
        reordered = lacks_times(container, stream)
        while True:
            try:
                packet = next(packets)
                if reordered and packet.dts is not None:
                    times.append(packet.dts)
                decoded = packet.decode()
            except StopIteration:
                break
            except av.InvalidDataError as error:
                if times:
                    times.pop()
                self.problems.append(f"a frame after {last:.2f} s cannot be decoded ({error.strerror})")
                continue
            except (av.FFmpegError, OSError) as error:
                self.problems.append(f"it ends after {last:.2f} s ({getattr(error, 'strerror', None) or error})")
                complete = False
                break
            for frame in decoded:
                seen += 1
                if times:
                    frame.pts = times.popleft()
                last = seconds(frame, stream, seen)
                shown = float((frame.duration or 0) * frame.time_base) if frame.time_base else 0.0
                if frame.is_corrupt:
                    self.problems.append(f"the frame at {last:.2f} s is damaged")
                yield frame
        if not complete or self.problems:
            return
        if listed and seen < listed and whole:
            self.problems.append(f"it ends after {last:.2f} s: {seen} of {listed} frames are there")
        elif seen and not listed and promised and last + shown + MISSING < promised:
            self.problems.append(f"it ends after {last:.2f} s of the {promised:.2f} s that it should have")

    def _select(self, decoded: Iterator[Any], stream: Any, span: TimeSpan, skip: int) -> Iterator[VideoFrame]:
        position, size = 0, None
        for number, frame in enumerate(decoded):
            time = seconds(frame, stream, number)
            if time < span.start - 1e-6:
                continue
            if span.end is not None and time > span.end + 1e-6:
                return
            position += 1
            if (position - 1) % span.every:
                continue
            index = (position - 1) // span.every
            if index < skip:
                continue
            image = upright(frame, stream.sample_aspect_ratio, display_matrix(frame))
            size = size or image.shape
            if image.shape != size:
                self.problems.append(size_problem(f"at {time:.2f} s", image, size))
                return
            yield VideoFrame(index, time, image)


def open_container(path: Path) -> Any:
    """Return the container, opened by PyAV. Raises DataError if it is not there, or no file that FFmpeg reads."""
    av = require_av()
    try:
        options = {"format_whitelist": FORMATS}
        return av.open(str(path.absolute()), options=options)  # a name such as 12:30.mp4 alone reads as a protocol
    except (av.FFmpegError, OSError) as error:
        why = getattr(error, "strerror", None) or str(error)
        cut = path.suffix.lower() in (".mp4", ".m4v", ".mov") and path.is_file()
        hint = " It may be truncated: an MP4 whose end is missing has no index." if cut else ""
        raise DataError(f"{path}: cannot be read as a video ({why}).{hint}") from None


def promised_length(container: Any, stream: Any) -> float | None:
    """Return the seconds that the stream should have by the file's header; Matroska has them as a tag of the stream."""
    if stream.duration:
        return float(stream.duration * stream.time_base)
    begin = float((stream.start_time or 0) * stream.time_base)
    match = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", ""))
    if match:
        hours, minutes, rest = map(float, match.groups())
        return 3600 * hours + 60 * minutes + rest - begin
    # With several streams the file's length may be that of the sound.
    return float(container.duration) / 1e6 if container.duration and len(container.streams) == 1 else None


def lacks_times(container: Any, stream: Any) -> bool:
    """Return whether frames are stored in another order than they are shown in, without their times: the times of an
    AVI are in the order of the file, so that its n-th time is that of the n-th frame that is shown."""
    return container.format.name == "avi" and bool(stream.codec_context.has_b_frames)


def seconds(frame: Any, stream: Any, number: int) -> float:
    """Return the seconds since the stream's first frame; by the mean rate where a frame has no time."""
    if frame.pts is None:
        return number / float(stream.average_rate or 30)
    return float((frame.pts - (stream.start_time or 0)) * frame.time_base)


def display_matrix(frame: Any) -> Any:
    """Return the matrix by which a frame is turned and mirrored; None without one.

    `frame.side_data` would keep it, and the frame in it: both would last until the garbage collector comes, which in a
    forked process waits for ever for threads of the frame that are not there.
    """
    from av.sidedata.sidedata import SideDataContainer

    container: Any = SideDataContainer  # whose stub has no arguments
    return container(frame).get("DISPLAYMATRIX")


def upright(frame: Any, aspect: Fraction | None, matrix: Any) -> UInt8[np.ndarray, "h w 3"]:
    """Return 8-bit RGB, turned and mirrored by a `display_matrix`, in square pixels. `aspect`: of a stored pixel, width
    over height."""
    known = aspect if aspect and Fraction(1, 4) <= aspect <= 4 else 1
    image: UInt8[np.ndarray, "h w 3"] = frame.to_ndarray(format="rgb24", width=round(frame.width * known))
    if matrix is None:
        return image
    (a, b, _), (c, d, _), _ = np.frombuffer(matrix, "i4").reshape(3, 3)  # x, y stored -> a x + c y, b x + d y shown
    if abs(b) > abs(a):
        image, a, d = image.swapaxes(0, 1), c, b
    return np.ascontiguousarray(image[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1])


def first_video_stream(container: Any, path: Path) -> Any:
    """Raise DataError if there is none."""
    streams = [s for s in container.streams.video if s.codec_context is not None]
    if not streams:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise DataError(f"{path}: holds no video, only {kinds}.")
    return streams[0]


@dataclass
class FrameFolder(VideoSource):
    """The images of a folder, in the natural order of their names (`2.png` before `10.png`).

    Attributes:
        rate: frames per second.
    """

    path: Path
    rate_per_second: float = 30.0
    problems: list[str] = field(default_factory=list)

    def files(self) -> list[Path]:
        inside = [p for p in self.path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith(".")]
        return sorted(inside, key=natural_order)

    def selected(self, span: TimeSpan) -> list[tuple[float, Path]]:
        timed = [(number / self.rate_per_second, path) for number, path in enumerate(self.files())]
        end = float("inf") if span.end is None else span.end
        return [pair for pair in timed if span.start - 1e-6 <= pair[0] <= end + 1e-6][:: span.every]

    def frames(self, span: TimeSpan = TimeSpan(), *, skip: int = 0) -> Iterator[VideoFrame]:
        self.problems.clear()
        files, size = self.files(), None
        names = dict(zip(files, tell_apart([path.stem for path in files], [path.name for path in files]), strict=True))
        for index, (time, path) in enumerate(self.selected(span)[skip:], skip):
            try:
                image = read_image(path)
            except (DataError, OSError) as error:
                self.problems.append(f"{path.name} {str(error).removeprefix(f'{path}: ').removesuffix('.')}")
                continue
            size = size or image.shape
            if image.shape != size:
                self.problems.append(size_problem(f"before {path.name}", image, size))
                return
            yield VideoFrame(index, time, image, names[path])

    def length(self, span: TimeSpan = TimeSpan()) -> int | None:
        return len(self.selected(span))

    def digest(self) -> str:
        files = "".join(f"{path.name}\0{file_digest(path)}\0" for path in self.files())
        return hashlib.sha256(files.encode(errors="surrogateescape")).hexdigest()

    def rate(self) -> float:
        return self.rate_per_second


@dataclass
class LiveCamera(VideoSource):
    """A camera of this machine, by number. Always gives the newest frame: what the model is too slow for is dropped."""

    number: int
    problems: list[str] = field(default_factory=list)

    def rate(self) -> float:
        return 30.0

    def frames(self, span: TimeSpan = TimeSpan(), *, skip: int = 0) -> Iterator[VideoFrame]:
        self.problems.clear()
        device = cv2.VideoCapture(self.number)
        if not device.isOpened():
            raise DataError(f"{CAMERA}{self.number}: no such camera, or another program uses it.")
        newest = NewestFrame(device)
        try:
            begun, index, size = perf_counter(), count(skip), None
            for passed in count():
                image = newest.take()
                time = perf_counter() - begun
                if image is None:
                    self.problems.append(f"it gave no more frames after {time:.1f} s")
                    return
                if span.end is not None and time > span.end:
                    return
                if time < span.start or passed % span.every:
                    continue
                size = size or image.shape
                if image.shape != size:
                    self.problems.append(size_problem(f"at {time:.1f} s", image, size))
                    return
                yield VideoFrame(next(index), time, image)
        finally:
            newest.close()


class NewestFrame:
    """Reads a device in a thread and keeps its last frame only, so that a slow consumer is never behind."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.changed = Condition()
        self.image: UInt8[np.ndarray, "h w 3"] | None = None
        self.open = True
        self.thread = Thread(target=self._read, name="camera", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while self.open:
            there, bgr = self.device.read()
            with self.changed:
                self.open = self.open and bool(there)
                self.image = bgr[..., ::-1].copy() if there else self.image
                self.changed.notify()

    def take(self) -> UInt8[np.ndarray, "h w 3"] | None:
        """Return the newest frame that was not taken yet; None when the camera is gone."""
        with self.changed:
            self.changed.wait_for(lambda: self.image is not None or not self.open, timeout=SILENCE)
            image, self.image = self.image, None
            return image

    def close(self) -> None:
        self.open = False
        self.thread.join(timeout=2)
        self.device.release()


def open_video(source: str | Path, rate: float = 30.0) -> VideoSource:
    """Return a video file, a folder of frames, or `camera:0`. `rate`: frames per second of a folder. Raises DataError:
    none of them."""
    text = str(source)
    if text.startswith(CAMERA) and text.removeprefix(CAMERA).isdigit():
        return LiveCamera(int(text.removeprefix(CAMERA)))
    path = Path(source).expanduser()
    if path.is_dir():
        folder = FrameFolder(path, rate)
        if not folder.files():
            raise DataError(f"{path}: holds no image to be a frame of a video.")
        return folder
    if not path.exists():
        raise DataError(f"{path}: no such file, folder or camera (camera:0).")
    return VideoFile(path)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file; empty where it cannot be read."""
    try:
        return sha256(path)
    except OSError:
        return ""


def natural_order(path: Path | str) -> list[tuple[float, str]]:
    """Return `frame2` before `frame10`, and of names that are times 12.25 before 12.5; the key of a file's name."""
    words = re.split(r"(^\d+\.\d+(?=$|\.\D)|\d+)", Path(path).name)
    return [((float if "." in word else int)(word), "") if i % 2 else (0, word) for i, word in enumerate(words)]


def size_problem(when: str, image: np.ndarray, first: tuple[int, ...]) -> str:
    (h, w), (height, width) = image.shape[:2], first[:2]
    return f"it ends {when}: that frame is {h}x{w}, those before {height}x{width}, and a video has one size"


def require_av() -> Any:
    """Import PyAV. Raises DataError if it is not installed."""
    try:
        import av
    except ImportError as error:
        raise DataError(f"videos need PyAV ({error}). Run: pip install 'densevit[video]'") from None
    return av
