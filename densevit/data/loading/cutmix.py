"""CutMix (Yun et al. 2019) of dense samples: a rectangle of another image with its ground truth; h x w pixels."""

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Bool

from densevit.data.fields import FIELDS
from densevit.errors import DataError
from densevit.structures import Sample, Size

AREA, ASPECT = (0.02, 0.4), (0.3, 1 / 0.3)  # of the rectangle: share of the image, height / width (UniMatch)


def cutmix(sample: Sample, other: Sample, rng: np.random.Generator) -> Sample:
    """The sample with a rectangle of `other`, at the same place; what either lacks is unknown there.

    Depth up to a scale, or up to scale and shift, has two of them now: losses align the two regions of `pasted` each by
    itself. Raises DataError if the two differ in size.
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
    return replace(
        sample.with_arrays({**maps, **rows}), normals=None, label=None, pasted=inside, weak_pasted=other.weak
    )


def rectangle(size: Size, rng: np.random.Generator) -> Bool[np.ndarray, "h w"]:
    """True in a random rectangle of an image."""
    h, w = size
    area = rng.uniform(AREA[0], AREA[1]) * h * w
    aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
    height, width = min(h, max(1, round(math.sqrt(area * aspect)))), min(w, max(1, round(math.sqrt(area / aspect))))
    top, left = int(rng.integers(h - height + 1)), int(rng.integers(w - width + 1))
    inside = np.zeros(size, np.bool_)
    inside[top : top + height, left : left + width] = True
    return inside
