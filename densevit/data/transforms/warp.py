"""Applies affine transforms to a sample: image, depth, valid mask, labels, normals and intrinsics; consecutive ones in
one warp.

The image is interpolated; maps take the nearest pixel, so that no depth appears that was not measured. Pixels from
outside the image are black, depth and normals 0, not valid, label 255. Normals turn with the camera: a mirrored image
has mirrored ones. The pose is kept by what only crops and resizes.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from jaxtyping import Int64

from densevit.data.transforms.base import Transform
from densevit.ops.geometry import Matrix, rolled, scale, transform_intrinsics
from densevit.ops.points import move_points
from densevit.structures import IGNORE, Sample, Size


@dataclass(frozen=True)
class AffineStep:
    """One affine transform, drawn for an image of a known size."""

    size: Size  # of the result
    matrix: Matrix = field(default_factory=lambda: np.eye(3))  # pixels before -> pixels after
    depth_divisor: float = 1.0  # depth is divided by it, and the focal length is kept
    crops: bool = False  # leaves out part of the image on purpose


class GeometricTransform(Transform):
    """A transform that only moves pixels. `Pipeline` applies consecutive ones in one warp."""

    @abstractmethod
    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        """Draws the parameters for an image of this size."""

    def draw_for(self, view: "LazySample", rng: np.random.Generator) -> AffineStep:
        """Draws the parameters for this sample; most transforms need its size only."""
        return self.draw(view.size, rng)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        view = LazySample.of(sample)
        return view.transform(self.draw_for(view, rng)).render()


class Pipeline(Transform):
    """Applies transforms in order (torchvision's Compose), and resamples once for consecutive geometric ones.

    Rotation, scale, crop and flip then cost one warp of the pixels that the crop keeps. The result is that of one
    by one, except that corners which a rotation alone would leave empty are filled where the image has them.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        view = LazySample.of(sample)
        for transform in self.transforms:
            if isinstance(transform, GeometricTransform):
                view = view.transform(transform.draw_for(view, rng))
            else:
                view = LazySample.of(transform(view.render(), rng))
        return view.render()


def compose(transforms: Sequence[Transform]) -> Pipeline:
    """All of them in order; a pipeline among them counts as its transforms, so that its last warp joins the next."""
    parts = (part.transforms if isinstance(part, Pipeline) else (part,) for part in transforms)
    return Pipeline([transform for part in parts for transform in part])


@dataclass(frozen=True)
class LazySample:
    """A sample with the affine transform that is still to be applied to it."""

    sample: Sample
    pending: AffineStep

    @classmethod
    def of(cls, sample: Sample) -> "LazySample":
        h, w = sample.image.shape[:2]
        return cls(sample, AffineStep((h, w)))

    @property
    def size(self) -> Size:
        return self.pending.size

    def transform(self, step: AffineStep) -> "LazySample":
        if self.pending.crops and not _is_exact(step.matrix):
            # Resampling at the border would bring back what was cropped, such as NYU's white border.
            return LazySample.of(self.render()).transform(step)
        joined = AffineStep(
            size=step.size,
            matrix=step.matrix @ self.pending.matrix,
            depth_divisor=step.depth_divisor * self.pending.depth_divisor,
            crops=step.crops or self.pending.crops,
        )
        return LazySample(self.sample, joined)

    def labels(self) -> Int64[np.ndarray, "h w"] | None:
        """The labels of `render` without the rest."""
        labels = self.sample.labels
        return None if labels is None else _labels(labels, self.pending, not _is_exact(self.pending.matrix))

    def render(self) -> Sample:
        sample, step = self.sample, self.pending
        h, w = sample.image.shape[:2]
        if step.size == (h, w) and np.array_equal(step.matrix, np.eye(3)):
            return sample
        resample = _take if _is_exact(step.matrix) else _warp
        depth = None if sample.depth is None else resample(sample.depth, step, 0)
        divisor = np.float32(step.depth_divisor)
        return replace(
            sample,
            image=resample(sample.image, step, 0),
            depth=depth if depth is None or step.depth_divisor == 1 else depth / divisor,
            valid=None if sample.valid is None else resample(sample.valid.view(np.uint8), step, 0).view(np.bool_),
            labels=self.labels(),
            normals=None if sample.normals is None else _normals(resample(sample.normals, step, 0), sample, step),
            points=None if sample.points is None else move_points(sample.points, step.matrix, step.size) / divisor,
            pose=sample.pose if _keeps_pose(step) else None,
            intrinsics=None if sample.intrinsics is None else _camera(sample.intrinsics, step),
        )


def _is_exact(move: Matrix) -> bool:
    """Whether pixels map to whole pixels: crops, pads and flips."""
    (a, b), (c, d) = move[:2, :2]
    return bool(abs(a) == abs(d) == 1 and b == c == 0 and np.all(move[:2, 2] % 1 == 0))


def _take(array: np.ndarray, step: AffineStep, outside: int) -> np.ndarray:
    """Applies an exact transform by slicing; a view of `array` where nothing lies outside."""
    out = step.size
    for axis, row in ((0, step.matrix[1]), (1, step.matrix[0])):
        length, offset = array.shape[axis], int(row[2])
        if row[1 - axis] < 0:  # the flipped pixel u lies at length - 1 - u
            array, offset = np.flip(array, axis), offset - (length - 1)
        array = _slice(array, axis, -offset, out[axis], outside)
    return array


def _slice(array: np.ndarray, axis: int, start: int, count: int, outside: int) -> np.ndarray:
    """`count` entries from `start`, which may lie before the first, padded with `outside`."""
    length = array.shape[axis]
    first, last = min(max(start, 0), length), min(max(start + count, 0), length)
    inside = array[(slice(None),) * axis + (slice(first, last),)]
    if last - first == count:
        return inside
    before = min(max(-start, 0), count)
    pads = [(0, 0)] * array.ndim
    pads[axis] = (before, count - before - (last - first))
    return np.pad(inside, pads, constant_values=outside)


def _warp(array: np.ndarray, step: AffineStep, outside: int) -> np.ndarray:
    """Resamples: images (8-bit, h w 3) linearly, maps to the nearest."""
    h, w = step.size
    image = array.ndim == 3 and array.dtype == np.uint8
    array, move = _shrink(array, step.matrix) if image else (array, step.matrix)
    flags = cv2.INTER_LINEAR if image else cv2.INTER_NEAREST
    fill = (float(outside),) * 4
    return cv2.warpAffine(array, move[:2], (w, h), flags=flags, borderValue=fill)


def _shrink(image: np.ndarray, move: Matrix) -> tuple[np.ndarray, Matrix]:
    """Averages whole blocks first when downscaling, against aliasing."""
    skips = [max(1, math.floor(1 / max(math.hypot(*move[:2, axis]), 1e-6) + 1e-9)) for axis in (0, 1)]
    if skips == [1, 1]:
        return image, move
    h, w = image.shape[:2]
    small_w, small_h = max(1, w // skips[0]), max(1, h // skips[1])
    small = cv2.resize(image, (small_w, small_h), interpolation=cv2.INTER_AREA)
    return small, move @ scale(w / small_w, h / small_h)


def _labels(labels: np.ndarray, step: AffineStep, resample: bool) -> np.ndarray:
    if not resample:
        return _take(labels, step, IGNORE)
    # cv2 does not warp 64-bit integers; float64 holds every class id.
    return _warp(labels.astype(np.float64), step, IGNORE).astype(np.int64)


def _normals(normals: np.ndarray, sample: Sample, step: AffineStep) -> np.ndarray:
    """Normals at their new places, turned with the camera and, where depth is divided, those of the divided depth."""
    turn = rolled(np.eye(3) if sample.intrinsics is None else sample.intrinsics, step.matrix)
    if step.depth_divisor == 1 and np.allclose(turn, np.eye(3)):
        return normals
    turned = normals @ (np.diag([1.0, 1.0, step.depth_divisor]) @ turn).T.astype(np.float32)
    length = np.linalg.norm(turned, axis=2, keepdims=True)
    return np.asarray(turned / np.maximum(length, np.float32(1e-12)))


def _keeps_pose(step: AffineStep) -> bool:
    (a, b), (c, d) = step.matrix[:2, :2]
    return bool(a > 0 < d and b == c == 0 and step.depth_divisor == 1)


def _camera(intrinsics: Matrix, step: AffineStep) -> Matrix:
    moved = transform_intrinsics(intrinsics, step.matrix)
    moved[:2, :2] /= step.depth_divisor
    return moved
