"""Whether a video moves enough to teach depth: measured on some pairs of frames before the training."""

import logging
import math
from typing import Any

import cv2
import numpy as np

from densevit.config.schema import Run
from densevit.data.datasets.base import evenly_spaced
from densevit.data.loading.clips import Clips
from densevit.data.loading.dataloader import AugmentedDataset
from densevit.data.transforms.affine import TRANSFORMS
from densevit.data.transforms.warp import compose
from densevit.errors import ConfigError, DataError
from densevit.ops.flow import dense_flow
from densevit.structures import Sample

log = logging.getLogger(__name__)

PAIRS = 24
LEAST = 0.5  # pixels of parallax: less drowns in noise and interpolation
MOST = 0.15  # of the width: what moves further has mostly left the image, or is not found
POINTS = 1000
ROUNDS = 5  # of fitting a rotation to the flow


def check_video(run: Run, data: Any, *, poses: bool) -> None:
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
    clips = Clips(data, run.data.clip, run.data.clip_stride)
    samples = AugmentedDataset(data, transform, run.seed)
    found, posed = [], 0
    for clip in evenly_spaced(len(clips), PAIRS):
        first, second = (samples.read(index, (0, clip)) for index in clips.frames(clip)[:2])
        if first.intrinsics is None or second.intrinsics is None:
            raise DataError(
                f"data.train: the camera of '{first.name}' is not known; write its focal length and centre into "
                "intrinsics.json, or set the data set's `camera`."
            )
        posed += first.pose is not None and second.pose is not None
        found.append(parallax(first, second))
    if poses and not posed:
        raise DataError(
            f"data.train: objective.motion 'poses' and objective.velocity need the pose of each image, and none of "
            f"{len(found)} pairs of frames has them. Set objective.motion=matches and objective.velocity=false to "
            "measure the motion (depth is then not in metres)."
        )
    middle, (h, w) = float(np.median(found)), first.image.shape[:2]
    told = (
        f"data.train: the median parallax of {len(found)} pairs of frames, rotation taken out, is {middle:.2f} pixels"
    )
    if middle < LEAST:
        stride = math.ceil(run.data.clip_stride * 2 * LEAST / max(middle, 0.05))
        raise DataError(
            f"{told} at {h}x{w}, where depth needs {LEAST}: the camera stands, or only turns. Film while you walk "
            f"sideways or forwards, or set data.clip_stride (now {run.data.clip_stride}) to {stride}, say."
        )
    if middle > MOST * w:
        log.warning("%s at %dx%d, which is far to search; lower data.clip_stride, or film slower.", told, h, w)


def parallax(first: Sample, second: Sample) -> float:
    """Return the median motion of the pixels that no rotation of the camera explains.

    The rotation is that of the poses where both are known, else the one that fits the optical flow best.
    """
    from scipy.spatial.transform import Rotation  # as in evaluation.py

    assert first.intrinsics is not None and second.intrinsics is not None
    gray = [cv2.cvtColor(np.ascontiguousarray(sample.image), cv2.COLOR_RGB2GRAY) for sample in (first, second)]
    flow = dense_flow(gray[0].astype(np.uint8), gray[1].astype(np.uint8))
    h, w = flow.shape[:2]
    rows = np.linspace(0, h * w - 1, min(POINTS, h * w)).astype(int)
    pixels = np.stack([rows % w, rows // w, np.ones(len(rows))], 1)
    found = pixels + np.pad(flow.reshape(-1, 2)[rows], ((0, 0), (0, 1)))
    rays, seen = (x @ np.linalg.inv(k).T for x, k in ((pixels, first.intrinsics), (found, second.intrinsics)))
    if first.pose is not None and second.pose is not None:
        return float(np.median(_rest(second.pose[:3, :3].T @ first.pose[:3, :3], rays, found, second.intrinsics)))
    rays, seen = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rays, seen))
    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        turn = Rotation.align_vectors(seen, rays, weights)[0].as_matrix()
        rest = _rest(turn, rays, found, second.intrinsics)
        weights = 1 / (1 + (rest / max(float(np.median(rest)), 0.1)) ** 2) ** 2  # Geman-McClure
    return float(np.median(rest))


def _rest(turn: np.ndarray, rays: np.ndarray, found: np.ndarray, camera: np.ndarray) -> np.ndarray:
    """Return the distances in pixels of what was found from where a rotation alone would have moved it."""
    moved = rays @ (camera @ turn).T
    rest: np.ndarray = np.linalg.norm(moved[:, :2] / np.maximum(moved[:, 2:], 1e-6) - found[:, :2], axis=1)
    return rest
