"""Samples of one size -> Batch, in as few bytes as hold them; what a sample lacks is filled and not valid."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from densevit.data.fields import FIELDS, check_types
from densevit.errors import DataError
from densevit.structures import Batch, Sample

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
