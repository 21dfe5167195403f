"""Samples of one size -> Batch, in as few bytes as hold them; what a sample lacks is filled and not valid."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from densevit.errors import DataError
from densevit.structures import IGNORE, NO_LABEL, Batch, Sample

T = TypeVar("T")


def collate(samples: Sequence[Sample], indices: Sequence[int]) -> Batch:
    """Stacks samples. A field that none of them has is None; where only some have it, the others get 0 for depth
    (not valid), points and normals, 255 for labels, -1 for label, NaN for intrinsics.

    Args:
        indices: the samples' positions in the data set.

    Raises:
        DataError: the samples differ in size.
    """
    h, w = _common_size(samples)
    pixels = torch.from_numpy(np.stack([s.image for s in samples]))
    return Batch(
        names=tuple(s.name for s in samples),
        indices=tuple(indices),
        # NHWC bytes seen as NCHW: the strides stay those of channels_last, which saves a transposed copy.
        image=pixels.permute(0, 3, 1, 2),
        depth=_stack([s.depth for s in samples], lambda: np.zeros((h, w), np.float32), (1, h, w)),
        valid=_stack([s.valid for s in samples], lambda: np.zeros((h, w), np.bool_), (1, h, w)),
        labels=_labels([s.labels for s in samples], (h, w)),
        label=_label([s.label for s in samples]),
        normals=_normals([s.normals for s in samples], (h, w)),
        intrinsics=_intrinsics([s.intrinsics for s in samples]),
        points=_stack([s.points for s in samples], lambda: np.zeros((h, w), np.float32), (1, h, w)),
        pasted=_stack([s.pasted for s in samples], lambda: np.zeros((h, w), np.bool_), (h, w)),
        weak=_images([s.weak for s in samples], (h, w)),
        weak_pasted=_images([s.weak_pasted for s in samples], (h, w)),
        depth_kinds=_unless_usual([s.depth_kind for s in samples], "metric"),
        sources=_unless_usual([s.source for s in samples], ""),
    )


def collate_by_size(samples: Sequence[Sample], indices: Sequence[int]) -> Iterator[Batch]:
    """One Batch for each run of samples of the same size, and of one data set of a mixture, in order."""
    for _, run in groupby(zip(samples, indices, strict=True), key=lambda pair: (pair[0].image.shape, pair[0].source)):
        same, positions = zip(*run, strict=True)
        yield collate(same, positions)


def _common_size(samples: Sequence[Sample]) -> tuple[int, int]:
    sizes = {s.image.shape[:2]: s.name for s in samples}
    if len(sizes) > 1:
        (size, name), (other_size, other_name) = list(sizes.items())[:2]
        raise DataError(
            f"a batch needs one size, but '{name}' is {size[0]}x{size[1]} and '{other_name}' is "
            f"{other_size[0]}x{other_size[1]}. Add random_crop, center_crop or resize to the transforms."
        )
    return next(iter(sizes))


def _stack(
    arrays: Sequence[np.ndarray | None], missing: Callable[[], np.ndarray], shape: tuple[int, ...]
) -> Tensor | None:
    if all(a is None for a in arrays):
        return None
    stacked = np.stack([missing() if a is None else a for a in arrays])
    return torch.from_numpy(stacked).reshape(len(arrays), *shape)


def _images(images: Sequence[np.ndarray | None], size: tuple[int, int]) -> Tensor | None:
    stacked = _stack(images, lambda: np.zeros((*size, 3), np.uint8), (*size, 3))
    return None if stacked is None else stacked.permute(0, 3, 1, 2)


def _normals(maps: Sequence[np.ndarray | None], size: tuple[int, int]) -> Tensor | None:
    stacked = _stack(maps, lambda: np.zeros((*size, 3), np.float32), (*size, 3))
    return None if stacked is None else stacked.permute(0, 3, 1, 2).contiguous()


def _unless_usual(values: Sequence[T], usual: T) -> tuple[T, ...]:
    """The values; none where all of them are the usual one."""
    return () if all(value == usual for value in values) else tuple(values)


def _labels(maps: Sequence[np.ndarray | None], size: tuple[int, int]) -> Tensor | None:
    stacked = _stack(maps, lambda: np.full(size, IGNORE, np.int64), size)
    if stacked is None:
        return None
    low, high = (int(end) for end in stacked.aminmax())
    narrow = (
        torch.uint8 if low >= 0 and high < 2**8 else torch.int16 if low >= -(2**15) and high < 2**15 else torch.int64
    )
    return stacked.to(narrow)


def _label(ids: Sequence[int | None]) -> Tensor | None:
    if all(i is None for i in ids):
        return None
    return torch.tensor([NO_LABEL if i is None else i for i in ids])


def _intrinsics(matrices: Sequence[Any]) -> Tensor | None:
    stacked = _stack(matrices, lambda: np.full((3, 3), np.nan), (3, 3))
    return None if stacked is None else stacked.to(torch.float32)
