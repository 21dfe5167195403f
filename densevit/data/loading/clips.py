"""Clips of a data set: frames of one video at a fixed distance."""

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from densevit.config.schema import TrainConfig
from densevit.config.validation import training_sources, training_transforms
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
        next: of each frame, the index of the one that follows it in a clip, or -1.
        by_source: of a mixture, the number of clips of each of its data sets; empty where there is none.
    """

    def __init__(self, data: Dataset, length: int, stride: int = 1) -> None:
        """Raise DataError if the data set's images do not follow one another in time, or its videos are too short.

        Args:
            stride: a clip has every n-th frame of its video, unless the data set has `next_frames`.
        """
        check_video(data)
        self.length, span = length, (length - 1) * stride + 1
        runs = list(videos(data).values())
        if data.next_frames is not None:
            self.next = data.next_frames
        else:
            self.next = np.full(len(data), -1)
            for frames in runs:
                self.next[frames[: max(0, len(frames) - stride)]] = frames[stride:]
        firsts = lasts = np.concatenate([np.array(frames) for frames in runs])
        for _ in range(length - 1):
            lasts = np.where(lasts < 0, -1, self.next[lasts])
        self.starts = firsts[lasts >= 0]
        if not len(self.starts) and data.next_frames is not None:
            raise DataError(f"no clip of {length} frames: no run of consecutive frames has enough motion.")
        if not len(self.starts):
            longest = max(map(len, runs))
            raise DataError(
                f"a clip of {length} frames, {stride} apart, spans {span} frames, and the longest of {len(runs)} "
                f"videos has {longest}. "
                + (f"At most {(longest - 1) // stride + 1} fit." if longest > stride else "Lower the stride.")
            )
        begins = np.isin(np.arange(len(data)), self.starts)
        if short := sum(not begins[frames].any() for frames in runs):
            log.warning("%d of %d videos have no clip of %d frames and are left out.", short, len(runs), length)
        edges = np.cumsum([0, *(len(source.data) for source in data.sources)])
        self.by_source = [int(((self.starts >= low) & (self.starts < high)).sum()) for low, high in pairwise(edges)]
        if empty := [s.name for s, count in zip(data.sources, self.by_source, strict=True) if not count]:
            raise DataError(f"sources {', '.join(empty)}: no video of {span} frames, which a clip spans.")

    @staticmethod
    def incompatible(run: TrainConfig) -> Iterator[str]:
        """Yield what in a run is incompatible with its clips."""
        clip = run.data.clip
        if run.batch_size % (clip * run.grad_accum_steps):
            micro = "" if run.grad_accum_steps == 1 else f" in each of {run.grad_accum_steps} micro-batches"
            yield f"data.clip: {run.batch_size} images a step hold no whole clips of {clip}{micro}."
        for key_path, source in training_sources(run.data).items():
            if source.get("cutmix"):
                yield f"{key_path}.cutmix: pastes a still image into a clip; leave it or data.clip out."
        for key_path, step in training_transforms(run.data):
            if step.get("type") == "random_crop" and step.get("max_share", 1) != 1:
                yield f"{key_path}.max_share: crops each frame of a clip by its own labels; leave it out."

    def __len__(self) -> int:
        return len(self.starts)

    def frames(self, clip: int) -> list[int]:
        """Return the indices of a clip's frames in the data set."""
        frames = [int(self.starts[clip])]
        while len(frames) < self.length:
            frames.append(int(self.next[frames[-1]]))
        return frames


def check_video(data: Dataset) -> None:
    """Raise DataError if the images of a data set do not follow one another in time."""
    if not data.video:
        names = [s.name for s in data.sources if not s.data.video] or [type(data).__name__]
        raise DataError(
            f"clips need frames that follow one another in time, and those of {', '.join(names)} do not. "
            "These are videos: walks of `rooms` (prepare_rooms.py --fps), recording, tum, scannet, sintel, vkitti2, "
            "`kitti` (split train), and `folder` with a folder of frames for each video."
        )


def videos(data: Dataset) -> dict[str, list[int]]:
    """Map each video to the indices of its frames: those of one scene and folder, by time, then in the natural order of
    names."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, name in enumerate(data.names):
        groups.setdefault((data.scene(index), folder_of(name)), []).append(index)
    return {
        video_name(*key): sorted(indices, key=lambda i: (data.time(i), natural_order(data.names[i])))
        for key, indices in groups.items()
    }


def video_name(scene: str, folder: str) -> str:
    return folder if folder.startswith(scene) and folder else f"{scene}/{folder}" if folder else scene or "clip"


def windows(data: Dataset, length: int) -> list[Sequence[int]]:
    """Return every frame of a data set once, in runs of up to `length` frames of one video."""
    runs = videos(data).values()
    return [frames[i : i + length] for frames in runs for i in range(0, len(frames), length)]
