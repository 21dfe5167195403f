"""Samples of one size -> Batch, in as few bytes as hold them; what a sample lacks is filled and not valid."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool

from densevit.data.fields import FIELDS, check_types
from densevit.data.io.samples import segments_of, with_segments
from densevit.errors import DataError
from densevit.structures import Batch, Sample, Size

T = TypeVar("T")
STACKED = [name for name in FIELDS if name in Batch.__dataclass_fields__]


def collate(samples: Sequence[Sample], indices: Sequence[int]) -> Batch:
    """Stack samples. A field that none of them has is None; where only some have it, the others get its fill: 0 for
    depth (not valid), points and normals, 255 for labels, -1 for label and segments, NaN for intrinsics. `indices`: the
    samples' positions in the data set. Raises DataError if they differ in size, or have pixels of another type."""
    for sample in samples:
        check_types(sample)
    size = _common_size(samples)
    columns = {name: [getattr(sample, name) for sample in samples] for name in STACKED}
    present = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    stacked: dict[str, Any] = {name: FIELDS[name].stack(values, size) for name, values in present.items()}
    inputs = dict.fromkeys(name for sample in samples for name in sample.inputs)
    return Batch(
        **stacked,
        inputs={name: FIELDS[name].stack([s.inputs.get(name) for s in samples], size) for name in inputs},
        names=tuple(s.name for s in samples),
        indices=tuple(indices),
        depth_kinds=_unless_usual([s.depth_kind for s in samples], "metric"),
        sources=_unless_usual([s.source for s in samples], ""),
    )


def collate_by_size(samples: Sequence[Sample], indices: Sequence[int]) -> Iterator[Batch]:
    """Yield one Batch for each run of samples of the same size, and of one data set of a mixture, in order."""
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


def _unless_usual(values: Sequence[T], usual: T) -> tuple[T, ...]:
    """Return the values; none where all of them are the usual one."""
    return () if all(value == usual for value in values) else tuple(values)


AREA, ASPECT = (0.02, 0.4), (0.3, 1 / 0.3)  # of the rectangle: share of the image, height / width (UniMatch)


def cutmix(sample: Sample, other: Sample, rng: np.random.Generator, things: Sequence[int] = ()) -> Sample:
    """Return the sample with a rectangle of `other`, at the same place; what either lacks is unknown there.

    Depth up to a scale, or up to scale and shift, has two of them now: losses align the two regions of `pasted` each by
    itself. Segments of one class of stuff are one; `things`: the classes of single objects, empty: all. Raises
    DataError if the two differ in size.
    """
    size, others = (s.image.shape[:2] for s in (sample, other))
    if size != others:
        raise DataError(
            f"cutmix needs images of one size, but they are {size[0]}x{size[1]} and {others[0]}x{others[1]}. Add "
            "random_crop, center_crop or resize to the transforms."
        )
    inside = rectangle((size[0], size[1]), rng)
    first, second = sample.arrays(), other.arrays()
    rows: dict[str, np.ndarray | None] = {
        name: np.concatenate([x[name] for x in (first, second) if name in x])
        for name in ("segment_classes", "segment_crowd")
        if name in first or name in second
    }
    if "segments" in second:  # numbered after those of the first image
        shift = np.int32(len(first.get("segment_classes", ())))
        second["segments"] = np.where(second["segments"] > 0, second["segments"] + shift, np.int32(0))

    def mixed(name: str) -> np.ndarray:
        one, two = (x[name] if name in x else FIELDS[name].missing((size[0], size[1])) for x in (first, second))
        return np.where(inside[..., None] if one.ndim == 3 else inside, two, one)

    maps = {name: mixed(name) for name in {**first, **second} if FIELDS[name].mixed}
    mix = replace(
        sample.with_arrays({**maps, **rows}),
        label=None,
        pasted=inside,
        pasted_intrinsics=other.intrinsics,
        weak_pasted=other.weak,
    )
    segments = segments_of(mix)
    return mix if segments is None else with_segments(mix, segments.one_of_each_stuff(things))


def rectangle(size: Size, rng: np.random.Generator) -> Bool[np.ndarray, "h w"]:
    """Return True in a random rectangle of an image."""
    h, w = size
    area = rng.uniform(AREA[0], AREA[1]) * h * w
    aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
    height, width = min(h, max(1, round(math.sqrt(area * aspect)))), min(w, max(1, round(math.sqrt(area / aspect))))
    top, left = int(rng.integers(h - height + 1)), int(rng.integers(w - width + 1))
    inside = np.zeros(size, np.bool_)
    inside[top : top + height, left : left + width] = True
    return inside
