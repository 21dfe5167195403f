"""The interface of training transforms, and affine ones of images and maps, resampled once. h x w pixels.

Images are interpolated; maps take the nearest pixel, so that no value appears that was not measured.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import cv2
import numpy as np

from densevit.ops.geometry import Matrix, scale
from densevit.registry import Registry
from densevit.structures import Sample, Size


@dataclass(frozen=True)
class AffineStep:
    """One affine transform of an image of a known size."""

    size: Size  # of the result
    matrix: Matrix = field(default_factory=lambda: np.eye(3))  # pixels before -> pixels after
    depth_divisor: float = 1.0  # depth is divided by it, and the focal length is kept
    crops: bool = False  # leaves out part of the image on purpose

    @property
    def is_exact(self) -> bool:
        """Whether pixels map to whole pixels: crops, pads and flips."""
        (a, b), (c, d) = self.matrix[:2, :2]
        return bool(abs(a) == abs(d) == 1 and b == c == 0 and np.all(self.matrix[:2, 2] % 1 == 0))


def resample(array: np.ndarray, step: AffineStep, outside: float) -> np.ndarray:
    """Return an image or a map after the transform, with `outside` where it had no pixel; a view where that is exact
    and all lies inside."""
    if step.is_exact:
        return _take(array, step, outside)
    if array.dtype == np.bool_:
        return _warp(array.view(np.uint8), step, outside).view(np.bool_)
    # cv2 does not warp 64-bit integers; float64 holds every class id.
    values = array.astype(np.float64) if array.dtype == np.int64 else array
    return _warp(values, step, outside).astype(array.dtype, copy=False)


def _take(array: np.ndarray, step: AffineStep, outside: float) -> np.ndarray:
    """Apply an exact transform by slicing; a view of `array` where nothing lies outside."""
    out = step.size
    for axis, row in ((0, step.matrix[1]), (1, step.matrix[0])):
        length, offset = array.shape[axis], int(row[2])
        if row[1 - axis] < 0:  # the flipped pixel u lies at length - 1 - u
            array, offset = np.flip(array, axis), offset - (length - 1)
        array = _slice(array, axis, -offset, out[axis], outside)
    return array


def _slice(array: np.ndarray, axis: int, start: int, count: int, outside: float) -> np.ndarray:
    """Return `count` entries from `start`, which may lie before the first, padded with `outside`."""
    length = array.shape[axis]
    first, last = min(max(start, 0), length), min(max(start + count, 0), length)
    inside = array[(slice(None),) * axis + (slice(first, last),)]
    if last - first == count:
        return inside
    before = min(max(-start, 0), count)
    pads = [(0, 0)] * array.ndim
    pads[axis] = (before, count - before - (last - first))
    return np.pad(inside, pads, constant_values=outside)


def _warp(array: np.ndarray, step: AffineStep, outside: float) -> np.ndarray:
    """Resample images (8-bit, h w 3) linearly, maps to the nearest."""
    h, w = step.size
    image = array.ndim == 3 and array.dtype == np.uint8
    array, move = _shrink(array, step.matrix) if image else (array, step.matrix)
    flags = cv2.INTER_LINEAR if image else cv2.INTER_NEAREST
    fill = (outside,) * 4
    return cv2.warpAffine(array, move[:2], (w, h), flags=flags, borderValue=fill)


def _shrink(image: np.ndarray, move: Matrix) -> tuple[np.ndarray, Matrix]:
    """Average whole blocks first when downscaling, against aliasing."""
    skips = [max(1, math.floor(1 / max(math.hypot(*move[:2, axis]), 1e-6) + 1e-9)) for axis in (0, 1)]
    if skips == [1, 1]:
        return image, move
    h, w = image.shape[:2]
    small_w, small_h = max(1, w // skips[0]), max(1, h // skips[1])
    small = cv2.resize(image, (small_w, small_h), interpolation=cv2.INTER_AREA)
    return small, move @ scale(w / small_w, h / small_h)


class Transform(ABC):
    """Sample in, sample out. All randomness comes from `rng`, so a sample's augmentation is a function of its seed."""

    @abstractmethod
    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample: ...


TRANSFORMS = Registry[Transform]("transform")
