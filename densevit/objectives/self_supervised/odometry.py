"""The motion of the camera between frames of a video, measured by matches of their pixels before the training."""

import logging
from typing import Any

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from densevit.data.datasets.base import Dataset
from densevit.data.fields import FIELDS, Points, Whole
from densevit.data.loading.clips import Clips
from densevit.data.transforms.affine import AffineStep
from densevit.errors import DataError
from densevit.objectives.self_supervised.geometry import Plane
from densevit.objectives.self_supervised.pairs import PairMeasurements
from densevit.objectives.self_supervised.parallax import SHORT_SIDE, Places, Rays, gray_view, off_rotation, rays
from densevit.ops.flow import Gray, consistent, dense_flow
from densevit.ops.geometry import Matrix, rolled, scale
from densevit.ops.points import MeasuredPoints, points_as_map
from densevit.structures import Sample

log = logging.getLogger(__name__)

MATCHES = 400  # all pixels below are of frames of `SHORT_SIDE`
NEAR_LINE = 0.75  # pixels between a match and its epipolar line
SOFT = 0.25  # pixels, scale of the Cauchy loss of the fit
LEAST_SEEN = 0.1  # of the pixels are led there and back by the optical flow
LEAST_PARALLAX = 2.0  # pixels, the median over the matches, rotation taken out
LEAST_AGREEING = 0.7  # of the matches lie near their lines
LEAST_IN_FRONT = 0.95  # of those see their point before both cameras
SIMILAR = 0.5  # log ratios of depth this far from their median count for the length of a baseline

Measured = tuple[Float64[np.ndarray, "4 4"], MeasuredPoints]
"""The motion to the other frame with a translation of length 1, and the depth of some pixels in that unit."""


class NextMotion(Whole):
    """The motion from an image's camera to that of the next frame of its clip."""

    def warp(self, value: Float64[np.ndarray, "4 4"], step: AffineStep, sample: Sample) -> Float64[np.ndarray, "4 4"]:
        turn = np.eye(4)
        turn[:3, :3] = rolled(np.eye(3) if sample.intrinsics is None else sample.intrinsics, step.matrix)
        return np.asarray(turn @ value @ turn.T)


FIELDS["next_motion"] = NextMotion(np.nan, torch.float32, (4, 4))
FIELDS["baselines"] = Points(np.float32)  # depth in lengths of the translation of `next_motion`, 0 where not measured


class MeasuredMotion:
    """Adds `next_motion` and `baselines` to each frame of a data set's videos where they can be measured.

    Args:
        stride: of clips.
    """

    def __init__(self, data: Dataset, stride: int, measurements: PairMeasurements) -> None:
        """Raise DataError if no motion can be measured."""
        clips = Clips(data, 2, stride)
        pairs = [(first, second) for first, second in map(clips.frames, range(len(clips)))]
        rows = measurements(motion_and_points, 12 + 3 * MATCHES, data, pairs)
        self.motions = {pair[0]: row for pair, row in zip(pairs, rows, strict=True) if np.isfinite(row[0])}
        summary = f"the motion of {len(self.motions):,} of {len(pairs):,} pairs of frames was measured by matches"
        if not self.motions:
            raise DataError(f"{summary}: film with more light, texture and parallax, or give poses.")
        log.log(logging.INFO if 2 * len(self.motions) > len(pairs) else logging.WARNING, "%s.", summary)

    def __call__(self, index: int, sample: Sample) -> Sample:
        """Return a sample, before its transforms, with what was measured from it."""
        if index not in self.motions:
            return sample
        motion, points = np.split(self.motions[index][np.isfinite(self.motions[index])].astype(np.float64), [12])
        size = (sample.image.shape[0], sample.image.shape[1])
        arrays = {
            "next_motion": np.r_[motion, 0, 0, 0, 1].reshape(4, 4),
            "baselines": points_as_map(MeasuredPoints(*points.reshape(3, -1)), size),
        }
        return sample.with_arrays(arrays)


def motion_and_points(first: Sample, second: Sample) -> Float64[np.ndarray, " _"]:
    """Return 12 numbers of the motion, and column, row and depth of the points; nothing where they are not measured."""
    if (measured := relative_motion(first, second)) is None:
        return np.zeros(0)
    motion, points = measured
    return np.concatenate([motion[:3].ravel(), points.u, points.v, points.depth])


def relative_motion(first: Sample, second: Sample) -> Measured | None:
    """Return the motion from the first camera to the second, None where the matches do not show it.

    The essential matrix by RANSAC, then a fit of rotation and direction to the distances of all matches from their
    epipolar lines.
    """
    from scipy.spatial.transform import Rotation  # takes half a second, and every training imports the objectives

    if first.intrinsics is None or second.intrinsics is None or first.image.shape != second.image.shape:
        return None
    factor = SHORT_SIDE / min(first.image.shape[:2])
    (a, camera), (b, other) = (gray_view(sample, factor) for sample in (first, second))
    pixels, moved = matches(a, b)
    if len(pixels) < MATCHES:
        return None
    x, y, focal = rays(pixels, camera), rays(moved, other), float(other[0, 0])
    flat_x, flat_y = (np.ascontiguousarray(part[:, :2]) for part in (x, y))
    essential, inliers = cv2.findEssentialMat(flat_x, flat_y, np.eye(3), cv2.RANSAC, 0.99, NEAR_LINE / focal)
    if essential is None or essential.shape != (3, 3):
        return None
    _, turn, direction, _ = cv2.recoverPose(essential, flat_x, flat_y, np.eye(3), mask=inliers)
    turn, direction = refined(turn, direction[:, 0], x, y, focal)
    turned = x @ turn.T
    near = np.abs(line_distances(turn, direction, x, y)) * focal < NEAR_LINE
    across, along = np.cross(y, turned), np.cross(y, direction)
    depth = -(across * along).sum(1) / np.maximum((across * across).sum(1), 1e-12)
    in_front = near & (depth > 0) & ((depth[:, None] * turned + direction)[:, 2] > 0)
    if near.mean() < LEAST_AGREEING or in_front.sum() < LEAST_IN_FRONT * near.sum():
        return None
    if np.median(off_rotation(turn, x, moved, other)) < LEAST_PARALLAX:
        return None
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = Rotation.from_matrix(turn).as_matrix(), direction
    u, v = (np.linalg.inv(scale(factor, factor)) @ np.c_[pixels, np.ones(len(pixels))][in_front].T)[:2]
    return motion, MeasuredPoints(u, v, depth[in_front])


def matches(a: Gray, b: Gray) -> tuple[Places, Places]:
    """Return pixels of a and where they are in b: some of the third with the strongest edges, of those that the
    optical flow leads there and back; none if these are few."""
    flow, back = dense_flow(a, b), dense_flow(b, a)
    seen = consistent(flow, back, a, b, slack=0.5)
    rows, columns = np.nonzero(seen & (seen.mean() > LEAST_SEEN))
    edges = np.hypot(*np.gradient(cv2.GaussianBlur(a, (0, 0), 1).astype(np.float64)))[rows, columns]
    strongest = np.argsort(-edges, kind="stable")[: len(edges) // 3]
    selected = np.random.default_rng(0).permutation(strongest)[:MATCHES]
    pixels = np.stack([columns, rows], 1)[selected].astype(np.float64)
    return pixels, pixels + flow[rows, columns][selected]


def refined(turn: Matrix, direction: Any, x: Rays, y: Rays, focal: float) -> tuple[Matrix, Any]:
    """Return the rotation and the direction with the least Cauchy loss of distances from epipolar lines."""
    from scipy.optimize import least_squares  # takes half a second, as above
    from scipy.spatial.transform import Rotation

    sideways = np.linalg.svd(direction[None])[2][1:]

    def moved(change: np.ndarray) -> tuple[Matrix, Any]:
        towards = direction + change[3:] @ sideways
        return Rotation.from_rotvec(change[:3]).as_matrix() @ turn, towards / np.linalg.norm(towards)

    def errors(change: np.ndarray) -> np.ndarray:
        return line_distances(*moved(change), x, y) * focal / SOFT

    return moved(least_squares(errors, np.zeros(5), loss="cauchy", max_nfev=20).x)


def line_distances(turn: Matrix, direction: Any, x: Rays, y: Rays) -> Float64[np.ndarray, " n"]:
    """Return the distances of matches from their epipolar lines at depth 1, to first order (Sampson)."""
    a, b, c = direction
    essential = np.array([[0, -c, b], [c, 0, -a], [-b, a, 0]]) @ turn
    lines, back = x @ essential.T, y @ essential
    squares = np.square(lines[:, :2]).sum(1) + np.square(back[:, :2]).sum(1)
    return np.asarray((y * lines).sum(1) / np.sqrt(np.maximum(squares, 1e-18)))


def baseline_lengths(depth: Plane, baselines: Plane) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
    """Return the lengths of the translations in the unit of `depth`, and of which images there are any matches.

    It is the mean of log depth over `baselines` where that is close to its median. The gradient passes, so that the
    losses do not change with the scale of depth.
    """
    ratio = (depth.clamp_min(1e-3) / baselines.clamp_min(1e-6)).log().flatten(1)
    measured = (baselines > 0).flatten(1)
    middle = torch.where(measured, ratio.detach(), torch.nan).nanquantile(0.5, dim=1, keepdim=True)
    close = measured & ((ratio - middle).abs() < SIMILAR)
    length = (torch.where(close, ratio, 0.0).sum(1) / close.sum(1).clamp_min(1)).exp()
    return length, close.any(1)
