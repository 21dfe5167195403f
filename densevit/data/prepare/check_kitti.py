"""What of KITTI is under a root, and what is missing, per split."""

from pathlib import Path

from densevit.data.datasets.depth.kitti import BENCHMARK, Frame, benchmark_frames, eigen_frames
from densevit.data.index.paths import Listing, first_five
from densevit.data.index.published_splits import read_list
from densevit.errors import DataError
from densevit.utils.atomic_io import write_text

EIGEN = ("train", "test")


def check(root: Path, depth_root: Path | None = None, *, write_lists: bool = False) -> bool:
    """Prints a line per split, with the first missing files.

    Args:
        write_lists: also write the complete pairs of the Eigen splits, for the data set's `list_file`.

    Returns:
        whether both Eigen splits are complete.

    Raises:
        DataError: there is no such root.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder.")
    complete = True
    for split in EIGEN:
        pairs = [pair for pair in read_list(root, None, f"kitti_eigen_{split}.txt.gz") if pair[1]]
        frames = eigen_frames(root, depth_root or root, pairs, "left")
        missing = _missing(frames)
        complete = complete and not missing
        print(f"eigen {split}: {len(frames) - len(missing):,} of {len(frames):,} pairs are complete.")
        print(end=first_five(lost for files in missing.values() for lost in files).lstrip("\n") + "\n" * bool(missing))
        if write_lists:
            lines = [f"{image} {depth} 721.5377\n" for i, (image, depth) in enumerate(pairs) if i not in missing]
            write_text(root / f"kitti_available_{split}.txt", "".join(lines))
            print(f"  wrote {root / f'kitti_available_{split}.txt'}")
    for split, (folder, count) in BENCHMARK.items():
        print(f"benchmark {split} ({folder}): {_benchmark_count(root, split):,} of {count:,} images.")
    return complete


def _missing(frames: list[Frame]) -> dict[int, list[Path]]:
    listing = Listing()
    lost = {i: [file for file in frame.files() if file not in listing] for i, frame in enumerate(frames)}
    return {i: files for i, files in lost.items() if files}


def _benchmark_count(root: Path, split: str) -> int:
    try:
        return len(benchmark_frames(root, split)) - len(_missing(benchmark_frames(root, split)))
    except DataError:  # the folder is not there
        return 0
