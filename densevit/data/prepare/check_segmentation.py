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


def check(name: str, root: Path, looks: int = 50) -> bool:
    """Prints a line per split, with what is missing, and reads some of its samples.

    Args:
        looks: how many samples of each split to read, evenly spread.

    Returns:
        whether all splits are complete, and what was read is sound.

    Raises:
        DataError: there is no such root.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder.")
    sound = [_check_split(name, root, split, count, looks) for split, count in COUNTS[name].items()]
    return all(sound)


def _check_split(name: str, root: Path, split: str, published: int, looks: int) -> bool:
    with collect_missing() as lacks:
        try:
            data = DATASETS.check({"type": name, "root": str(root.absolute()), "split": split}, "data").build()
        except DataError as error:
            print(f"{split}: none of {published:,} samples. {error}")
            return False
    missing = [lack.where for lack in lacks if lack.kind == "missing"]
    print(f"{split}: {len(data):,} of {published:,} samples are complete.{first_five(missing)}")
    read = spread(len(data), looks)
    faults = _faults(data, read)
    print(f"  {len(read)} of them read, {len(faults)} are bad.{first_five(faults)}")
    return len(data) >= published and not faults


def spread(count: int, looks: int) -> list[int]:
    """So many of the first `count` numbers, evenly spread, the first and the last among them.

    >>> spread(10, 4), spread(2, 50)
    ([0, 3, 6, 9], [0, 1])
    """
    looks = min(count, looks)
    return [round(i * (count - 1) / max(looks - 1, 1)) for i in range(looks)]


def _faults(data: Dataset, indices: Iterable[int]) -> list[str]:
    found = []
    for index in indices:
        try:
            data.read(index)
        except DataError as error:
            found.append(str(error))
    return found
