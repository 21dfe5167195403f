"""What of a published data set of label maps is under a root, and whether its files are what they should be."""

from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.data.datasets.segmentation import ade20k, cityscapes, coco_stuff, pascal_context, voc
from densevit.data.index.paths import collect_missing, first_five
from densevit.errors import DataError

# Data set -> split -> published images; the splits that papers train and validate on.
COUNTS: dict[str, dict[str, int]] = {
    "ade20k": ade20k.COUNTS,
    "cityscapes": {split: cityscapes.COUNTS[split] for split in get_args(cityscapes.Split)[:2]},
    "voc": {split: voc.COUNTS[split] for split in ("train", "val", "train_aug")},
    "pascal_context": pascal_context.COUNTS,
    "coco_stuff": coco_stuff.COUNTS,
}


def check(name: str, root: Path, samples: int = 50) -> bool:
    """Prints a line per split, with what is missing, and reads some of its samples. `samples`: of each split to read,
    evenly spaced. Raises DataError if there is no such root. Returns whether all splits are complete, and every sample
    read is good."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder.")
    complete = [_check_split(name, root, split, count, samples) for split, count in COUNTS[name].items()]
    return all(complete)


def _check_split(name: str, root: Path, split: str, published: int, samples: int) -> bool:
    with collect_missing() as absent:
        try:
            data = DATASETS.check({"type": name, "root": str(root.absolute()), "split": split}, "data").build()
        except DataError as error:
            print(f"{split}: none of {published:,} samples. {error}")
            return False
    missing = [item.where for item in absent if item.kind == "missing"]
    print(f"{split}: {len(data):,} of {published:,} samples are complete.{first_five(missing)}")
    read = evenly_spaced(len(data), samples)
    faults = _faults(data, read)
    print(f"  {len(read)} of them read, {len(faults)} are bad.{first_five(faults)}")
    return len(data) >= published and not faults


def evenly_spaced(count: int, samples: int) -> list[int]:
    """`samples` of the numbers below `count`, evenly spaced, the first and the last among them.

    >>> evenly_spaced(10, 4), evenly_spaced(2, 50)
    ([0, 3, 6, 9], [0, 1])
    """
    samples = min(count, samples)
    return [round(i * (count - 1) / max(samples - 1, 1)) for i in range(samples)]


def _faults(data: Dataset, indices: Iterable[int]) -> list[str]:
    found = []
    for index in indices:
        try:
            data.read(index)
        except DataError as error:
            found.append(str(error))
    return found
