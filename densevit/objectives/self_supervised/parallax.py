"""Whether, and from which frame to which, a video moves enough to teach depth: measured before the training."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from jaxtyping import Float64, Int64

from densevit.config.schema import TrainConfig
from densevit.data.datasets.base import Dataset, evenly_spaced
from densevit.data.loading.augmented import AugmentedDataset
from densevit.data.loading.clips import Clips, videos
from densevit.data.transforms.affine import TRANSFORMS
from densevit.data.transforms.geometric import compose
from densevit.errors import ConfigError, DataError
from densevit.objectives.self_supervised.pairs import PairMeasurements
from densevit.ops.flow import Gray, dense_flow
from densevit.ops.geometry import Matrix, scale, transform_intrinsics
from densevit.structures import Sample

log = logging.getLogger(__name__)

PAIRS = 24
SHORT_SIDE = 192  # pixels that frames have while they are matched and distances are chosen
LEAST = 0.5  # pixels of parallax: less drowns in noise and interpolation
ENOUGH = 4.0  # pixels at `SHORT_SIDE`: where frames are apart so far, no larger distance is chosen
MOST = 0.15  # of the width: what moves further has mostly left the image, or is not found
POINTS = 1000
ROUNDS = 5  # of fitting a rotation to the flow

Places = Float64[np.ndarray, "n 2"]
Rays = Float64[np.ndarray, "n 3"]


def check_video(run: TrainConfig, data: Any, *, poses: bool) -> None:
    """Check that the training data have cameras, poses if they are needed, and parallax.

    Raises:
        ConfigError: a transform changes depth in a way that no camera does.
        DataError: a camera or all poses are missing, or the camera stands still or only turns; with what was measured.
    """
    transform = compose([TRANSFORMS.check(spec, "data.transforms").build() for spec in run.data.transforms])
    for part in (*transform.transforms, *(t for source in data.sources for t in source.transforms)):
        if getattr(part, "metric", "intrinsics") != "intrinsics":
            name = type(part).__name__
            raise ConfigError(f"data.transforms: {name} divides depth, as no camera does; set its metric: intrinsics.")
    stride = max(run.objective["strides"], default=run.data.clip_stride)
    clips = Clips(data, 2, stride)
    samples = AugmentedDataset(data, transform, run.seed)
    found, posed, unknown, first = [], 0, [], None
    for clip in evenly_spaced(len(clips), PAIRS):
        try:
            first, second = (samples.read(index, (0, clip)) for index in clips.frames(clip))
        except DataError:
            if run.data.on_corrupt == "raise":
                raise
            continue
        if first.intrinsics is not None and second.intrinsics is not None:
            posed += first.pose is not None and second.pose is not None
            found.append(parallax(first, second))
        elif first.depth is None or not run.objective["ground_truth"]:
            unknown.append(first.name)
    if first is None:
        raise DataError("data.train: not one of the pairs of frames looked at can be read.")
    if unknown or not found:
        raise DataError(
            f"data.train: the camera of '{[*unknown, first.name][0]}' is not known; write its focal length and centre "
            "into intrinsics.json, or set the data set's `camera`."
        )
    if poses and not posed:
        raise DataError(
            f"data.train: objective.motion 'poses' and objective.velocity need the pose of each image, and none of "
            f"{len(found)} pairs of frames has them. Set objective.motion=matches and objective.velocity=false to "
            "measure the motion (depth is then not in metres)."
        )
    middle, (h, w) = float(np.median(found)), first.image.shape[:2]
    summary = (
        f"data.train: the median parallax of {len(found)} pairs of frames, rotation taken out, is {middle:.2f} pixels"
    )
    if middle < LEAST:
        raise DataError(
            f"{summary} at {h}x{w}, where depth needs {LEAST}: the camera stands, or only turns. Film while you walk "
            f"sideways or forwards, or compare frames that are further apart than {stride}: "
            f"data.clip_stride={math.ceil(stride * 2 * LEAST / max(middle, 0.05))}, say."
        )
    if middle > MOST * w and not run.objective["strides"]:
        log.warning("%s at %dx%d, which is far to search; lower data.clip_stride, or film slower.", summary, h, w)


def chosen_frames(data: Dataset, strides: Sequence[int], measurements: PairMeasurements) -> Int64[np.ndarray, " n"]:
    """Return, for each frame, the index of the next frame of its clip: of those `strides` later the nearest that has
    `ENOUGH` parallax, else the one that has most, -1 where none has any. Raises DataError if none has any anywhere."""
    runs = list(videos(data).values())
    pairs = [
        pair for stride in sorted(strides) for frames in runs for pair in zip(frames, frames[stride:], strict=False)
    ]
    following, most = np.full(len(data), -1), np.zeros(len(data))
    found = measurements(parallax_at_short_side, 1, data, pairs)[:, 0]
    for (first, second), pixels in zip(pairs, found, strict=True):
        useful = min(pixels, ENOUGH) if pixels >= LEAST else 0.0
        if useful > most[first]:
            following[first], most[first] = second, useful
    moving, later = int((following >= 0).sum()), ", ".join(map(str, sorted(strides)))
    summary = f"{moving:,} of {len(data):,} frames have {LEAST} pixels of parallax beside the frame {later} later"
    if not moving:
        middle = np.median(np.nan_to_num(found))
        raise DataError(f"{summary}; the median is {middle:.2f}. Film while you walk, or set larger objective.strides.")
    log.info("%s.", summary)
    return following


def parallax_at_short_side(first: Sample, second: Sample) -> list[float]:
    """Return the parallax in pixels of frames of `SHORT_SIDE`; nothing where it cannot be measured or is too large."""
    if first.intrinsics is None or second.intrinsics is None or first.image.shape != second.image.shape:
        return []
    h, w = first.image.shape[:2]
    pixels = parallax(first, second, SHORT_SIDE / min(h, w))
    return [pixels] * (pixels <= MOST * w * SHORT_SIDE / min(h, w))


def parallax(first: Sample, second: Sample, factor: float = 1.0) -> float:
    """Return the median motion of the pixels that no rotation of the camera explains.

    The rotation is that of the poses where both are known, else the one that fits the optical flow best.

    Args:
        factor: by which the frames are resized before, also the unit of what is returned.
    """
    from scipy.spatial.transform import Rotation  # as in evaluation.py

    (a, camera), (b, other) = (gray_view(sample, factor) for sample in (first, second))
    flow = dense_flow(a, b)
    h, w = flow.shape[:2]
    rows = np.linspace(0, h * w - 1, min(POINTS, h * w)).astype(int)
    pixels = np.stack([rows % w, rows // w], 1).astype(np.float64)
    found = pixels + flow.reshape(-1, 2)[rows]
    x, y = rays(pixels, camera), rays(found, other)
    if first.pose is not None and second.pose is not None:
        return float(np.median(off_rotation(second.pose[:3, :3].T @ first.pose[:3, :3], x, found, other)))
    directions, seen = (points / np.linalg.norm(points, axis=1, keepdims=True) for points in (x, y))
    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        turn = Rotation.align_vectors(seen, directions, weights)[0].as_matrix()
        rest = off_rotation(turn, x, found, other)
        weights = 1 / (1 + (rest / max(float(np.median(rest)), 0.1)) ** 2) ** 2  # Geman-McClure
    return float(np.median(rest))


def gray_view(sample: Sample, factor: float) -> tuple[Gray, Matrix]:
    """Return the brightness and the camera of an image resized by a factor."""
    assert sample.intrinsics is not None
    gray = cv2.cvtColor(np.ascontiguousarray(sample.image), cv2.COLOR_RGB2GRAY)
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    resized = np.asarray(cv2.resize(gray, None, fx=factor, fy=factor, interpolation=how), np.uint8)
    return resized, transform_intrinsics(sample.intrinsics, scale(factor, factor))


def rays(pixels: Places, camera: Matrix) -> Rays:
    """Return the points at depth 1 that pixels show."""
    return np.asarray(np.c_[pixels, np.ones(len(pixels))] @ np.linalg.inv(camera).T)


def off_rotation(turn: Matrix, x: Rays, found: Places, camera: Matrix) -> Float64[np.ndarray, " n"]:
    """Return the distances in pixels of what was found from where a rotation alone would have moved it."""
    moved = x @ (camera @ turn).T
    return np.asarray(np.linalg.norm(moved[:, :2] / np.maximum(moved[:, 2:], 1e-6) - found, axis=1))
