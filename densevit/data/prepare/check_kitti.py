"""What of KITTI is under a root, and what is missing, per split."""

from pathlib import Path

from densevit.data.datasets.depth.kitti import BENCHMARK, benchmark_samples, eigen_samples
from densevit.data.index.paths import Listing, SampleFiles, first_five
from densevit.data.index.published_splits import read_list
from densevit.errors import DataError
from densevit.utils.atomic_io import write_text

EIGEN = ("train", "test")


def check(root: Path, depth_root: Path | None = None, *, write_lists: bool = False) -> bool:
    """Prints a line per split, with the first missing files. `write_lists`: also write the complete pairs of the Eigen
    splits, for the data set's `list_file`. Raises DataError if there is no such root. Returns whether both Eigen splits
    are complete."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder.")
    complete = True
    for split in EIGEN:
        pairs = [pair for pair in read_list(root, None, f"kitti_eigen_{split}.txt.gz") if pair[1]]
        samples = eigen_samples(root, depth_root or root, pairs, "left")
        missing = _missing(samples)
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


def _missing(samples: list[SampleFiles]) -> dict[int, list[Path]]:
    listing = Listing()
    missing = {i: [path for path in files.paths().values() if path not in listing] for i, files in enumerate(samples)}
    return {i: paths for i, paths in missing.items() if paths}


def _benchmark_count(root: Path, split: str) -> int:
    try:
        samples = benchmark_samples(root, split)
        return len(samples) - len(_missing(samples))
    except DataError:  # the folder is not there
        return 0
