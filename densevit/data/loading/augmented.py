"""Augmented samples of a data set, CutMix among them; and errors of reading that name the sample."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate

import numpy as np
from jaxtyping import Bool

from densevit.data.datasets.base import Dataset
from densevit.data.fields import FIELDS
from densevit.data.io.samples import segments_of, with_segments
from densevit.data.loading.sampler import SampleKey
from densevit.data.transforms.affine import Transform
from densevit.data.transforms.geometric import compose
from densevit.errors import DataError
from densevit.structures import Sample, Size


def transforms_by_source(dataset: Dataset, transform: Transform) -> dict[str, Transform]:
    """Return the transforms of the samples of each source of a mixture, `transform` last; "" has those of no source."""
    by_source = {source.name: compose([*source.transforms, transform]) for source in dataset.sources}
    return {"": transform, **by_source}


class AugmentedDataset:
    """Augmented samples: that of key (epoch, index) is the same in every process and every run of one seed.

    With `views` a sample has only that many augmentations, and epoch n has number n modulo views.
    """

    def __init__(self, dataset: Dataset, transform: Transform, seed: int, views: int | None = None) -> None:
        self.dataset, self.seed, self.views = dataset, seed, views
        starts = accumulate((len(source.data) for source in dataset.sources), initial=0)
        self.partners = {
            source.name: (range(start, start + len(source.data)), source.cutmix)
            for source, start in zip(dataset.sources, starts, strict=False)
        }
        self.transforms = transforms_by_source(dataset, transform)
        self.strong = {source.name: compose(source.strong) for source in dataset.sources if source.strong is not None}

    def read(self, index: int, key: SampleKey) -> Sample:
        """Sample `index`, augmented by the seed of `key`; the two differ for the frames of a clip, whose key is the
        clip's. Raises DataError that names the sample."""
        if self.views is not None:
            key = (key[0] % self.views, index)
        with with_sample_name(self.dataset, index):
            rng = np.random.default_rng((self.seed, *key))
            sample = self._transformed(index, rng)
            indices, share = self.partners.get(sample.source, (range(0), 0.0))
            if share and rng.random() < share:
                other = self._transformed(indices[int(rng.integers(len(indices)))], rng)
                return cutmix(sample, other, rng, self.dataset.things)
            return sample

    def _transformed(self, index: int, rng: np.random.Generator) -> Sample:
        sample = self.dataset.read_annotated(index)
        weak = self.transforms[sample.source](sample, rng)
        strong = self.strong.get(sample.source)
        return weak if strong is None else replace(strong(weak, rng), weak=weak.image)


@contextmanager
def with_sample_name(dataset: Dataset, index: int) -> Iterator[None]:
    """Add index and name of the sample to errors of reading it."""
    try:
        yield
    except (DataError, OSError) as error:
        raise DataError(f"{describe(dataset, index)}: {error}") from error


def describe(dataset: Dataset, index: int) -> str:
    return f"sample {index} ('{dataset.names[index]}')"


def describe_with_files(dataset: Dataset, index: int) -> str:
    """Return the sample and its files, for errors that do not name the file."""
    return ", ".join([describe(dataset, index), *map(str, dataset.files(index).values())])


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
