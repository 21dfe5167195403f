"""Maps of the frames of a video or a camera, one after another. h x w pixels."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np

from densevit.data.io.readers import ImageLike, Rgb, stack
from densevit.data.io.video import LiveCamera, TimeSpan, open_video
from densevit.data.loading.prefetch import paired
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import CameraNumbers, focal_numbers
from densevit.inference.image_input import ImageInput, Map
from densevit.inference.predictor import Predictor
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.inference.video.windows import ClipNetwork, ClipWindows, FramesPrediction
from densevit.model_inputs import NO_INPUTS, join_inputs
from densevit.structures import Box, EncoderOutput
from densevit.utils.device import download
from densevit.utils.process import peak_memory

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class VideoDepth:
    """A frame of a video with its map."""

    index: int  # its position among the frames that were asked for
    time: float  # seconds since the first frame of the file
    image: Rgb
    depth: Map


def predict_frames(
    predictor: Predictor,
    frames: Iterable[ImageLike | ImageInput],
    *,
    head: str | None = None,
    box: Box | None = None,
    stabilize: bool = False,
    lookahead: int = 0,
    fuse: bool = True,
    skip_bad: bool = False,
) -> Iterator[Map]:
    """Return the map of one frame of a camera or video after another; reads the next frame once its map was taken.

    >>> maps = densevit.predict_frames(predictor, frames_of_my_camera(), stabilize=True)  # doctest: +SKIP

    Raises DataError if a frame is no image, or no such head. Raises ConfigError if the head to stabilise gives no
    depth.

    Args:
        frames: without end, too. With a batch size of 1 and no `lookahead`, a map comes before the next frame is read.
        head: which one, where the model has several.
        stabilize: bring each map to the running scale of its neighbours (inference/video/stabilizer.py).
        lookahead: maps come this many frames late, and are stabilised by later frames, too. At 0 a model with motion
            blocks sees earlier frames only; else windows, whose maps come up to a window late.
        fuse: with `stabilize`, average static parts per pixel, too.
        skip_bad: log frames that are no images and continue with the next, which has the next map.
    """
    name = predictor.card.head(head)
    inputs = read_good(predictor, frames) if skip_bad else map(predictor.read, frames)
    if (first := next(inputs, None)) is None:
        return
    camera = video_camera(predictor, first)
    cameras = {first.image.shape: camera}

    def with_camera(frame: ImageInput) -> ImageInput:
        if frame.image.shape not in cameras:
            cameras[frame.image.shape] = video_camera(predictor, frame)
        return frame if frame.camera is not None else replace(frame, camera=cameras[frame.image.shape])

    inputs = map(with_camera, chain([first], inputs))
    predicted: Callable[[Iterable[ImageInput]], Iterator[dict[str, Map]]]
    predicted = partial(predictor.stream_all, box=box, ahead=lookahead > 0)
    if sees_motion(predictor):
        predicted = partial(predict_windows, predictor, causal=lookahead == 0, box=box)
    if not stabilize:
        yield from (maps[name] for maps in predicted(inputs))
        return
    spec = predictor.card.outputs[name]
    kind, limits = (spec.kind, spec.metres) if first.points is None else ("metric", None)
    focal = None if camera is None else focal_numbers(camera)[0]
    stabilizer = Stabilizer(kind, future=lookahead, focal=focal, limits=limits, fuse=fuse)
    pairs = ((frame.image, maps[name]) for frame, maps in paired(inputs, predicted))
    yield from stabilize_stream(pairs, stabilizer)


def read_good(predictor: Predictor, frames: Iterable[ImageLike | ImageInput]) -> Iterator[ImageInput]:
    """Yield the frames that are images; log the others."""
    for index, frame in enumerate(frames):
        try:
            yield predictor.read(frame)
        except DataError as error:
            log.warning("frame %d is left out: %s", index, error)


def predict_video(
    predictor: Predictor,
    path: str | Path,
    *,
    head: str | None = None,
    start: float = 0.0,
    end: float | None = None,
    every: int = 1,
    stabilize: bool = False,
    lookahead: int = 6,
    fuse: bool = True,
) -> Iterator[VideoDepth]:
    """Return the frames of a video with their times and maps, one after another, in memory that does not grow. Raises
    DataError if it cannot be read.

    Args:
        path: a video file, a folder of frames, or `camera:0`. Files need `densevit[video]`.
        start, end, every: seconds to begin and end at, and every how many frames.
        stabilize, lookahead, fuse: as in `predict_frames`; a camera has no lookahead.
    """
    source = open_video(path)
    ahead = 0 if isinstance(source, LiveCamera) else lookahead
    predict = partial(predict_frames, predictor, head=head, stabilize=stabilize, lookahead=ahead, fuse=fuse)
    frames = source.frames(TimeSpan(start, end, every))
    for frame, depth in paired(frames, lambda each: predict(frame.image for frame in each)):
        yield VideoDepth(frame.index, frame.time, frame.image, depth)


def video_camera(predictor: Predictor, first: ImageInput) -> CameraNumbers | None:
    """Return the focal length of a video that begins with this frame; None for a model that needs none or knows none.

    Where the model estimates it, all frames have that of the first.
    """
    policy = predictor.cameras
    if first.camera is None and policy.estimates:
        return predictor.estimate_camera(first.image)
    return policy.of_size(first.image.shape[:2]) if first.camera is None else first.camera


def sees_motion(predictor: Predictor) -> bool:
    """Return whether frames are predicted from those around them, too, by motion blocks."""
    return predictor.card.clip_frames > 1


def predict_windows(
    predictor: Predictor, inputs: Iterable[ImageInput], *, causal: bool = False, box: Box | None = None
) -> Iterator[dict[str, Map]]:
    """Return the maps of one frame of a video after another, by a model with motion blocks; see `ClipWindows`. Raises
    ConfigError: with measured points, tiles, sliding windows, flip, several scales, or a runtime other than torch."""
    windows = motion_windows(predictor, causal=causal, box=box)
    for frame in inputs:
        if frame.points is not None:
            raise ConfigError("points: for single images; a model with motion blocks sees videos without.")
        yield from windows.push(frame)
    yield from windows.flush()


def motion_windows(predictor: Predictor, *, causal: bool = False, box: Box | None = None) -> ClipWindows:
    """Return what predicts the frames of a video; for models with motion blocks. Raises ConfigError: as
    `predict_windows`."""
    resize = predictor.card.resize
    options = {
        "tiling": predictor.tiling is not None, "flip": predictor.flip or resize.flip,
        "scales": tuple(predictor.scales) != (1.0,), f"runtime {predictor.runtime}": predictor.runtime != "torch",
        "sliding windows": resize.window is not None,
    }  # fmt: skip
    if used := [name for name, is_used in options.items() if is_used]:
        raise ConfigError(f"{', '.join(used)}: for single images; a model with motion blocks sees videos without.")
    kinds = {name: spec.kind for name, spec in predictor.card.outputs.items()}
    predict = partial(predict_clip, predictor, box=box)
    return ClipWindows(predict, predictor.card.clip_frames, kinds, causal=causal)


def predict_clip(
    predictor: Predictor, frames: list[ImageInput], features: list[EncoderOutput], *, box: Box | None = None
) -> FramesPrediction:
    """Return the maps of the frames of a clip, given features of the first of them, and the features of the others."""
    network, images = ClipNetwork(predictor.model, features), stack([frame.image for frame in frames])
    inputs = join_inputs([predictor.with_cameras(frame.image[None], NO_INPUTS, frame.camera) for frame in frames])
    maps = predictor.predict_batch(images, box=box, inputs=inputs, network=network)
    arrays = download(maps).read()
    return [predictor.unbatch(arrays, i) for i in range(len(frames))], network.new


T = TypeVar("T")


@dataclass
class Latency:
    """Measures a stream that it is handed; `print(latency)` at any time.

    >>> latency = Latency()
    >>> maps = list(latency.of(iter("abc")))
    >>> len(latency.seconds), latency.seconds[0] >= 0
    (3, True)

    Attributes:
        seconds: from asking for each map to having it, the wait for its frame included.
    """

    seconds: list[float] = field(default_factory=list)

    def of(self, maps: Iterable[T]) -> Iterator[T]:
        """Yield the maps of a stream, and note how long each took."""
        stream, start = iter(maps), perf_counter()
        for each in stream:
            self.seconds.append(perf_counter() - start)
            yield each
            start = perf_counter()

    def __str__(self) -> str:
        if not self.seconds:
            return "no maps yet"
        # The first one builds what the others use.
        median, p95 = 1e3 * np.percentile(self.seconds[1:] or self.seconds, [50, 95])
        peak = peak_memory()
        return (
            f"{len(self.seconds):,} maps: median {median:.1f} ms, 95% within {p95:.1f} ms, first "
            f"{1e3 * self.seconds[0]:.1f} ms" + ("" if peak is None else f"; {peak / 2**20:,.0f} MiB at most")
        )
