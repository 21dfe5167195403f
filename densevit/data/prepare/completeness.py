"""What of a published data set is under a root, what is missing per split, and whether its files are good."""

from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.data.datasets.depth.kitti import BENCHMARK, benchmark_samples, eigen_samples
from densevit.data.datasets.segmentation import ade20k, cityscapes, coco_stuff, pascal_context, voc
from densevit.data.index.paths import Listing, SampleFiles, collect_missing, first_five
from densevit.data.index.published_splits import read_list
from densevit.errors import DataError
from densevit.utils.atomic_io import write_text

EIGEN = ("train", "test")


def check_kitti(root: Path, depth_root: Path | None = None, *, write_lists: bool = False) -> bool:
    """Prints a line per split, with the first missing files. `write_lists`: also write the complete pairs of the Eigen
    splits, for the data set's `list_file`. Raises DataError if there is no such root. Returns whether both Eigen splits
    are complete."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder.")
    complete = True
    for split in EIGEN:
        pairs = [pair for pair in read_list(root, None, f"kitti_eigen_{split}.txt.gz") if pair[1]]
        samples = eigen_samples(root, depth_root or root, pairs, "left")
        missing = _missing_files(samples)
        complete = complete and not missing
        print(f"eigen {split}: {len(samples) - len(missing):,} of {len(samples):,} pairs are complete.")
        print(end=first_five(path for paths in missing.values() for path in paths).lstrip("\n") + "\n" * bool(missing))
        if write_lists:
            lines = [f"{image} {depth} 721.5377\n" for i, (image, depth) in enumerate(pairs) if i not in missing]
            write_text(root / f"kitti_available_{split}.txt", "".join(lines))
            print(f"  wrote {root / f'kitti_available_{split}.txt'}")
    for split, (folder, count) in BENCHMARK.items():
        print(f"benchmark {split} ({folder}): {_benchmark_count(root, split):,} of {count:,} images.")
    return complete


def _missing_files(samples: list[SampleFiles]) -> dict[int, list[Path]]:
    listing = Listing()
    missing = {i: [path for path in files.paths().values() if path not in listing] for i, files in enumerate(samples)}
    return {i: paths for i, paths in missing.items() if paths}


def _benchmark_count(root: Path, split: str) -> int:
    try:
        samples = benchmark_samples(root, split)
        return len(samples) - len(_missing_files(samples))
    except DataError:  # the folder is not there
        return 0


# Data set -> split -> published images; the splits that papers train and validate on.
COUNTS: dict[str, dict[str, int]] = {
    "ade20k": ade20k.COUNTS,
    "cityscapes": {split: cityscapes.COUNTS[split] for split in get_args(cityscapes.Split)[:2]},
    "voc": {split: voc.COUNTS[split] for split in ("train", "val", "train_aug")},
    "pascal_context": pascal_context.COUNTS,
    "coco_stuff": coco_stuff.COUNTS,
}


def check_segmentation(name: str, root: Path, samples: int = 50) -> bool:
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
