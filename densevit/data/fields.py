"""The fields of a sample: how each is moved along with the image, mixed by CutMix and stacked into a batch.

One table, `FIELDS`, serves transforms, crops, CutMix and collation. h x w pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from densevit.data.recordings.distortion import PinholeView
from densevit.data.transforms.affine import AffineStep, resample
from densevit.errors import DataError
from densevit.ops.geometry import Matrix, rolled, shift, transform_intrinsics
from densevit.ops.points import move_points
from densevit.structures import IGNORE, NO_LABEL, Box, Sample, Size

MIN_SEGMENT = 4
"""Pixels below which what a crop leaves of a segment is dropped."""


class Field:
    """A value of the image as a whole, which no transform changes.

    Attributes:
        fill: of pixels from outside the image.
        mixed: CutMix takes the pixels of both images.
    """

    fill: float
    mixed: bool = False

    def warp(self, value: Any, step: AffineStep, sample: Sample) -> Any:
        """Return the value for the transformed image, None where it has none. `sample`: before the transform."""
        return value

    def missing(self, size: Size) -> np.ndarray:
        """Return what stands for the value of a sample without one in a batch."""
        raise NotImplementedError

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        """Return the values of a batch, of which at least one is not None."""
        return torch.from_numpy(np.stack([self.missing(size) if value is None else value for value in values]))


@dataclass(frozen=True)
class Whole(Field):
    """Numbers of the image as a whole.

    Attributes:
        fill: of images without.
        shape: of one image's.
        dtype: in the batch.
    """

    fill: float
    dtype: torch.dtype
    shape: tuple[int, ...] = ()

    def missing(self, size: Size) -> np.ndarray:
        return np.full(self.shape, self.fill)

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        return super().stack(values, size).to(self.dtype)


class Intrinsics(Whole):
    def warp(self, value: Matrix, step: AffineStep, sample: Sample) -> Matrix:
        moved = transform_intrinsics(value, step.matrix)
        moved[:2, :2] /= step.depth_divisor
        return moved


class Pose(Whole):
    """Camera to world: a rotated image is that of a rolled camera, a mirrored one that of a mirrored world. Where depth
    is divided, no motion of a camera fits several images."""

    def warp(
        self, value: Float64[np.ndarray, "4 4"], step: AffineStep, sample: Sample
    ) -> Float64[np.ndarray, "4 4"] | None:
        turn = rolled(np.eye(3) if sample.intrinsics is None else sample.intrinsics, step.matrix)
        if step.depth_divisor != 1:
            return None
        if np.allclose(turn, np.eye(3)):
            return value
        moved = value.copy()
        moved[:3, :3] = value[:3, :3] @ turn.T
        return np.asarray(np.diag([np.linalg.det(turn).round(), 1, 1, 1]) @ moved)

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        """Count positions from the batch's first known one: 32 bits hold no metres of a map's origin."""
        origin = np.zeros((4, 4))
        origin[:3, 3] = next(value for value in values if value is not None)[:3, 3]
        return super().stack([None if value is None else value - origin for value in values], size)


@dataclass(frozen=True)
class Pixels(Field):
    """A number for each pixel; b h w in a batch.

    Attributes:
        dtype: of the sample's array.
        fill: of pixels from outside the image, and of images without.
    """

    dtype: type[np.generic]
    fill: float = 0
    mixed: bool = False

    def warp(self, value: np.ndarray, step: AffineStep, sample: Sample) -> np.ndarray:
        return resample(value, step, self.fill)

    def missing(self, size: Size) -> np.ndarray:
        return np.full(size, self.fill, self.dtype)


class Labels(Pixels):
    """In a batch in the narrowest integers that hold them."""

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        stacked = super().stack(values, size)
        low, high = (int(end) for end in stacked.aminmax())
        for dtype in (torch.uint8, torch.int16):
            if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
                return stacked.to(dtype)
        return stacked


class SegmentIds(Labels):
    """Numbers of segments. Transforms drop what they leave of a segment if it is under `MIN_SEGMENT` pixels."""

    def missing(self, size: Size) -> np.ndarray:
        return np.full(size, -1, self.dtype)

    def warp(self, value: np.ndarray, step: AffineStep, sample: Sample) -> np.ndarray:
        moved = super().warp(value, step, sample)
        before, after = (np.bincount(ids.ravel(), minlength=int(value.max(initial=0)) + 1) for ids in (value, moved))
        tiny = (after > 0) & (after < MIN_SEGMENT) & (after < before)
        return np.where(tiny[moved], value.dtype.type(0), moved) if tiny[1:].any() else moved


@dataclass(frozen=True)
class PerSegment(Field):
    """A value for each segment; b n in a batch, filled after the last segment of an image."""

    fill: int
    dtype: type[np.generic]

    def missing(self, size: Size) -> np.ndarray:
        return np.zeros(0, self.dtype)

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        rows = [self.missing(size) if value is None else value for value in values]
        padded = np.full((len(rows), max(map(len, rows))), self.fill, self.dtype)
        for row, value in zip(padded, rows, strict=True):
            row[: len(value)] = value
        return torch.from_numpy(padded)


class Plane(Pixels):
    """Like `Pixels`, but b 1 h w in a batch."""

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        return super().stack(values, size)[:, None]


class Depth(Plane):
    def warp(self, value: np.ndarray, step: AffineStep, sample: Sample) -> np.ndarray:
        moved = resample(value, step, self.fill)
        return moved if step.depth_divisor == 1 else moved / np.float32(step.depth_divisor)


class Points(Plane):
    """Depth at single pixels, 0 elsewhere: each point moves to the nearest pixel."""

    def warp(self, value: np.ndarray, step: AffineStep, sample: Sample) -> np.ndarray:
        return move_points(value, step.matrix, step.size) / np.float32(step.depth_divisor)


class Colors(Pixels):
    """Three numbers for each pixel; b 3 h w in a batch.

    The strides stay those of NHWC, channels_last, which saves a transposed copy.
    """

    def missing(self, size: Size) -> np.ndarray:
        return np.full((*size, 3), self.fill, self.dtype)

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        return super().stack(values, size).permute(0, 3, 1, 2)


class Normals(Colors):
    """Unit vectors in camera axes, 0 where unknown: they turn with the camera, and a mirrored image has mirrored ones.
    Where depth is divided, they are those of the divided depth."""

    def warp(self, value: np.ndarray, step: AffineStep, sample: Sample) -> Float32[np.ndarray, "h w 3"]:
        normals = resample(value, step, self.fill)
        turn = rolled(np.eye(3) if sample.intrinsics is None else sample.intrinsics, step.matrix)
        if step.depth_divisor == 1 and np.allclose(turn, np.eye(3)):
            return normals
        turned = normals @ (np.diag([1.0, 1.0, step.depth_divisor]) @ turn).T.astype(np.float32)
        length = np.linalg.norm(turned, axis=2, keepdims=True)
        return np.asarray(turned / np.maximum(length, np.float32(1e-12)))

    def stack(self, values: Sequence[Any], size: Size) -> Tensor:
        return super().stack(values, size).contiguous()


FIELDS: dict[str, Field] = {
    "image": Colors(np.uint8, mixed=True),
    "depth": Depth(np.float32, mixed=True),
    "valid": Plane(np.bool_, mixed=True),
    "labels": Labels(np.int64, fill=IGNORE, mixed=True),
    "label": Whole(NO_LABEL, torch.int64),
    "segments": SegmentIds(np.int32, mixed=True),
    "segment_classes": PerSegment(NO_LABEL, np.int64),
    "segment_crowd": PerSegment(0, np.bool_),
    "normals": Normals(np.float32, mixed=True),
    "intrinsics": Intrinsics(np.nan, torch.float32, (3, 3)),
    "pose": Pose(np.nan, torch.float32, (4, 4)),
    "points": Points(np.float32, mixed=True),
    "pasted": Pixels(np.bool_),
    "pasted_intrinsics": Intrinsics(np.nan, torch.float32, (3, 3)),
    "weak": Colors(np.uint8),
    "weak_pasted": Colors(np.uint8),
}
"""By the name of the field in `Sample` and `Batch`, or in their `inputs`; words are missing here, for nothing changes
them."""


def check_types(sample: Sample) -> None:
    """Raise DataError: a data set or a transform of a plug-in gives pixels in another type than `Sample` has."""
    for name, x in sample.arrays().items():
        field = FIELDS.get(name)
        if isinstance(field, Pixels) and x.dtype != field.dtype:
            raise DataError(
                f"'{sample.name}': {name} is {x.dtype} instead of {np.dtype(field.dtype)}"
                f"{', 0 to 255' * (field.dtype is np.uint8)}; see densevit/structures.py."
            )


def warp_sample(sample: Sample, step: AffineStep) -> Sample:
    """Return the sample with every field after the transform."""
    return sample.with_arrays({name: FIELDS[name].warp(x, step, sample) for name, x in sample.arrays().items()})


def crop_sample(sample: Sample, box: Box) -> Sample:
    """Return the window of everything that the sample holds; intrinsics move with it."""
    y0, y1, x0, x1 = box
    cropped = warp_sample(sample, AffineStep((y1 - y0, x1 - x0), shift(-x0, -y0)))
    return cropped.with_arrays({name: np.ascontiguousarray(x) for name, x in cropped.arrays().items()})


def undistort_sample(sample: Sample, view: PinholeView) -> Sample:
    """Return the sample as a pinhole camera shows it, but for the depth, which is so already (`depth_at_image`)."""
    moved = {
        name: view.image(x) if name == "image" else view.nearest(x)
        for name, x in sample.arrays().items()
        if isinstance(FIELDS[name], Pixels) and name not in ("depth", "valid")
    }
    return sample.with_arrays({**moved, "intrinsics": view.matrix})
