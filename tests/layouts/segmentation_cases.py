"""Every segmentation data set, with how its files are written and opened."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from photo_samples import sample

import layouts
from densevit.structures import IGNORE, Sample


@dataclass(frozen=True)
class Case:
    """A data set and how its files are written."""

    type: str
    write: Callable[..., None]
    classes: int
    written: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def name(self) -> str:
        return "-".join([self.type, *map(str, self.options.values()), *map(str, self.written.values())])


CASES = [
    Case("ade20k", layouts.write_ade20k, 150),
    Case("cityscapes", layouts.write_cityscapes, 19),
    Case("cityscapes", layouts.write_cityscapes, 19, {"encodings": ["labelTrainIds"]}),
    Case("cityscapes", layouts.write_cityscapes, 19, options={"encoding": "instanceIds"}),
    Case("voc", layouts.write_voc, 21),
    Case("pascal_context", layouts.write_pascal_context, 60, options={"background": True}),
    Case("pascal_context", layouts.write_pascal_context, 60, {"form": "converted"}, {"background": True}),
    Case("coco_stuff", layouts.write_coco_stuff, 171),
    Case("coco_stuff", layouts.write_coco_stuff, 171, {"encoding": "converted"}, {"encoding": "converted"}),
]


def samples(classes: int, count: int = 2, size: tuple[int, int] = (96, 128)) -> list[Sample]:
    """Photographs whose label maps hold every class, and 255 where nothing was measured."""
    made = []
    for i in range(count):
        one = sample(f"aachen/{i}", *size, shift=30 * i)
        labels = (np.arange(size[0] * size[1]).reshape(size) // 40 + i) % classes
        made.append(replace(one, labels=np.where(one.valid, labels, IGNORE)))
    return made
