"""Scores that need no depth: the photometric error of held-out clips, and trajectories."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from densevit.data.datasets.base import Dataset, evenly_spaced
from densevit.data.loading.augmented import with_sample_name
from densevit.data.loading.clips import Clips, videos
from densevit.data.loading.collate import collate
from densevit.data.loading.dataloader import OnError, refuse_more_skipped
from densevit.data.transforms.geometric import Resize
from densevit.engine.objective import AllReduceMean
from densevit.errors import DataError
from densevit.model_card import ModelCard
from densevit.objectives.self_supervised.geometry import Motion
from densevit.ops.resize import network_size
from densevit.structures import Batch, Sample, Size
from densevit.utils import atomic_io

log = logging.getLogger(__name__)

CLIPS = 64  # of a validation
FRAMES = 16  # pairs at once

Trajectory = Float64[np.ndarray, "n 4 4"]
Tracked = tuple[str, Trajectory, dict[int, Sample]]


class HeldOutVideos:
    """The videos of `data.val`, at the size of the network's input.

    Args:
        length, stride: of clips, as in training.
        on_corrupt: skip leaves out clips and trajectories with an unreadable frame, with a warning, up to
            `max_corrupt_fraction` of the frames.

    Raises:
        DataError: no video is as long as a clip.
    """

    def __init__(
        self,
        data: Dataset,
        length: int,
        stride: int,
        card: ModelCard,
        on_corrupt: OnError = "raise",
        max_corrupt_fraction: float = 0.001,
    ) -> None:
        self.data, self.stride, self.card = data, stride, card
        self.on_corrupt, self.max_corrupt_fraction = on_corrupt, max_corrupt_fraction
        self.clips = Clips(data, length, stride)

    def read(self, index: int, size: Size | None = None) -> Sample:
        """Read a frame at `size`, the network's input; by default the one for images of this size."""
        with with_sample_name(self.data, index):
            sample = self.data.read_annotated(index)
        h, w = sample.image.shape[:2]
        resize = Resize(size=size or network_size((h, w), self.card.resize, self.card.multiple))
        return resize(sample, np.random.default_rng(0))

    def batches(self, rank: int, world_size: int) -> Iterator[Batch]:
        """Yield this process's share of some clips, spread over the videos."""
        clips = [self.clips.frames(clip) for clip in evenly_spaced(len(self.clips), CLIPS)[rank::world_size]]
        faults, frames = set[str](), {index for indices in clips for index in indices}
        for indices in clips:
            with self.may_skip(faults, len(frames)):
                first = self.read(indices[0])
                h, w = first.image.shape[:2]
                yield as_clip([first, *(self.read(index, (h, w)) for index in indices[1:])], indices)

    def trajectories(self, motions: Callable[[Batch], Motion]) -> Iterator[Tracked]:
        """Yield each video's name, its poses (camera to world, the first is the identity), and its samples by the
        number of the frame; of frames that follow each other in clips.

        Args:
            motions: from each frame of a clip to the next.
        """
        faults = set[str]()
        for name, frames in videos(self.data).items():
            numbers = self._path(frames)
            samples: list[Sample] = []
            with self.may_skip(faults, len(self.data)):
                samples = [self.read(frames[number]) for number in numbers]
            if len({sample.image.shape for sample in samples}) > 1 or len(samples) < 3:
                continue
            poses = [np.eye(4)]
            for start in range(0, len(samples) - 1, FRAMES):
                part = samples[start : start + FRAMES + 1]
                for motion in motions(as_clip(part, range(len(part)))).double().cpu().numpy():
                    poses.append(poses[-1] @ np.linalg.inv(motion))
            yield name, np.stack(poses), dict(zip(numbers, samples, strict=True))

    @contextmanager
    def may_skip(self, faults: set[str], frames: int) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            if self.on_corrupt == "raise":
                raise
            log.warning("not validated: %s", error)
            faults.add(str(error))  # a frame may be in several clips
            refuse_more_skipped(len(faults), frames, self.max_corrupt_fraction, str(error))

    def _path(self, frames: Sequence[int]) -> list[int]:
        """Return the numbers of the first frame of a video and those that follow it, `stride` later where no clip has a
        next one."""
        path, number = [0], {index: i for i, index in enumerate(frames)}
        while (after := number.get(int(self.clips.next[frames[path[-1]]]), path[-1] + self.stride)) < len(frames):
            path.append(after)
        return path


def as_clip(samples: Sequence[Sample], indices: Sequence[int]) -> Batch:
    return replace(collate(samples, indices), clip_length=len(samples))


def trajectory_scores(found: Iterator[Tracked], folder: Path | None) -> dict[str, float]:
    """Return the means over videos whose poses are known of `trajectory_errors`; empty where none are.

    Args:
        folder: where every trajectory is written in TUM RGB-D's format, with the number of the frame as its time.
    """
    rows: list[Mapping[str, float]] = []
    for name, poses, samples in found:
        if folder is not None:
            path = folder / f"{name.replace('/', '_')}.txt"
            atomic_io.make_folder(folder)
            atomic_io.write_text(path, tum_lines(samples, poses))
        known = {i: sample.pose for i, sample in enumerate(samples.values()) if sample.pose is not None}
        if len(known) > 2:
            rows.append(trajectory_errors(poses[list(known)], np.stack(list(known.values()))))
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]} if rows else {}


def tum_lines(times: Iterable[float], poses: Trajectory) -> str:
    """Return lines `time tx ty tz qx qy qz qw`."""
    from scipy.spatial.transform import Rotation  # takes half a second, and every training imports the objectives

    turns = Rotation.from_matrix(poses[:, :3, :3]).as_quat()
    rows = ((time, *pose[:3, 3], *turn) for time, pose, turn in zip(times, poses, turns, strict=True))
    return "".join(" ".join(f"{value:.9g}" for value in row) + "\n" for row in rows)


def trajectory_errors(found: Trajectory, true: Trajectory) -> dict[str, float]:
    """Return `ate`, the RMS distance in metres after the best similarity (Umeyama 1991; evo_ape -as), and of the
    motions from frame to frame `rpe` in metres, at that scale, and `rpe_degrees` (RMS; evo_rpe)."""
    from scipy.spatial.transform import Rotation

    a, b = found[:, :3, 3], true[:, :3, 3]
    scale, turn, shift = similarity(a, b)
    ate = np.linalg.norm(scale * a @ turn.T + shift - b, axis=1)
    steps = []
    for poses, factor in ((found, scale), (true, 1.0)):
        moved = poses.copy()
        moved[:, :3, 3] *= factor
        steps.append(np.linalg.inv(moved[:-1]) @ moved[1:])
    rest = np.linalg.inv(steps[1]) @ steps[0]
    angles = np.degrees(Rotation.from_matrix(rest[:, :3, :3]).magnitude())
    errors = {"ate": ate, "rpe": np.linalg.norm(rest[:, :3, 3], axis=1), "rpe_degrees": angles}
    return {name: float(np.sqrt(np.mean(np.square(values)))) for name, values in errors.items()}


def similarity(
    a: Float64[np.ndarray, "n 3"], b: Float64[np.ndarray, "n 3"]
) -> tuple[float, Float64[np.ndarray, "3 3"], Float64[np.ndarray, "3"]]:
    """Return scale, rotation and shift that bring points a onto b with the least squares (Umeyama 1991)."""
    mean_a, mean_b = a.mean(0), b.mean(0)
    u, values, vt = np.linalg.svd((b - mean_b).T @ (a - mean_a) / len(a))
    signs = np.array([1, 1, np.sign(np.linalg.det(u) * np.linalg.det(vt))])
    turn = u @ np.diag(signs) @ vt
    scale = float((values * signs).sum() / max(np.square(a - mean_a).sum(1).mean(), 1e-12))
    return scale, turn, mean_b - scale * turn @ mean_a


def mean_over(batches: Iterator[Batch], score: Callable[[Batch], Tensor], all_reduce_mean: AllReduceMean) -> float:
    """Return the mean of a score of batches over all processes, without those whose score is NaN; NaN of none."""
    values = [value for value in (float(score(batch)) for batch in batches) if not math.isnan(value)]
    total = all_reduce_mean({"sum": sum(values), "count": float(len(values))})
    return total["sum"] / total["count"] if total["count"] else math.nan
