"""Clips of a data set: frames of one video, so many frames apart."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from densevit.config.schema import Run
from densevit.data.datasets.base import Dataset, folder_of
from densevit.data.io.video import natural_order
from densevit.errors import DataError

log = logging.getLogger(__name__)


class Stills:
    """The images of a data set as clips of one frame; see `Clips`."""

    length = 1

    def __init__(self, data: Dataset) -> None:
        self.count, self.by_source = len(data), [len(source.data) for source in data.sources]

    def __len__(self) -> int:
        return self.count

    def frames(self, clip: int) -> list[int]:
        return [clip]


class Clips:
    """The clips of a data set: every frame that is followed by enough others of its video begins one.

    Attributes:
        length: frames of a clip.
        by_source: of a mixture, the number of clips of each of its data sets; empty where there is none.
    """

    def __init__(self, data: Dataset, length: int, stride: int = 1) -> None:
        """Raises DataError if the data set's images do not follow one another in time, or its videos are too short.

        Args:
            stride: a clip has every so many-th frame of its video.
        """
        check_video(data)
        self.length, self.stride = length, stride
        span = (length - 1) * stride + 1
        runs = list(videos(data).values())
        self.order = np.concatenate([np.array(frames) for frames in runs])
        begins = np.cumsum([0, *(len(frames) for frames in runs)])
        long_enough = [(begin, len(frames)) for begin, frames in zip(begins, runs, strict=False) if len(frames) >= span]
        if not long_enough:
            longest = max(map(len, runs))
            raise DataError(
                f"a clip of {length} frames, {stride} apart, spans {span} frames, and the longest of {len(runs)} "
                f"videos has {longest}. "
                + (f"At most {(longest - 1) // stride + 1} fit." if longest > stride else "Lower the stride.")
            )
        if len(long_enough) < len(runs):
            short = len(runs) - len(long_enough)
            log.warning("%d of %d videos are shorter than a clip (%d frames) and left out.", short, len(runs), span)
        self.starts = np.concatenate([np.arange(begin, begin + count - span + 1) for begin, count in long_enough])
        edges = np.cumsum([0, *(len(source.data) for source in data.sources)])
        firsts = self.order[self.starts]
        self.by_source = [int(((firsts >= low) & (firsts < high)).sum()) for low, high in pairwise(edges)]
        if empty := [s.name for s, count in zip(data.sources, self.by_source, strict=True) if not count]:
            raise DataError(f"sources {', '.join(empty)}: no video of {span} frames, which a clip spans.")

    @staticmethod
    def incompatible(run: Run) -> Iterator[str]:
        """Yield what in a run is incompatible with its clips."""
        clip = run.data.clip
        if clip > 1 and run.batch_size % (clip * run.grad_accum_steps):
            micro = "" if run.grad_accum_steps == 1 else f" in each of {run.grad_accum_steps} micro-batches"
            yield f"data.clip: {run.batch_size} images a step hold no whole clips of {clip}{micro}."
        for i, source in enumerate(run.data.train.get("sources") or ()):
            if clip > 1 and isinstance(source, Mapping) and source.get("cutmix"):
                yield f"data.train.sources.{i}.cutmix: pastes a still image into a clip; leave it or data.clip out."

    def __len__(self) -> int:
        return len(self.starts)

    def frames(self, clip: int) -> list[int]:
        """The indices of a clip's frames in the data set."""
        first = int(self.starts[clip])
        return [int(i) for i in self.order[first : first + (self.length - 1) * self.stride + 1 : self.stride]]


def check_video(data: Dataset) -> None:
    """Raises DataError if the images of a data set do not follow one another in time."""
    if not data.video:
        names = [s.name for s in data.sources if not s.data.video] or [type(data).__name__]
        raise DataError(
            f"clips need frames that follow one another in time, and those of {', '.join(names)} do not. "
            "These are videos: walks of `rooms` (prepare_rooms.py --fps), recording, tum, scannet, sintel, vkitti2, "
            "`kitti` (split train), and `folder` with a folder of frames for each video."
        )


def videos(data: Dataset) -> dict[str, list[int]]:
    """Video -> the indices of its frames, in time: those of one scene and folder, in the natural order of names."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, name in enumerate(data.names):
        groups.setdefault((data.scene(index), folder_of(name)), []).append(index)
    return {
        video_name(*key): sorted(indices, key=lambda i: natural_order(data.names[i])) for key, indices in groups.items()
    }


def video_name(scene: str, folder: str) -> str:
    return folder if folder.startswith(scene) and folder else f"{scene}/{folder}" if folder else scene or "clip"


def windows(data: Dataset, length: int) -> list[Sequence[int]]:
    """Every frame of a data set once, in runs of up to `length` frames of one video."""
    runs = videos(data).values()
    return [frames[i : i + length] for frames in runs for i in range(0, len(frames), length)]
