"""`tum`: TUM RGB-D sequences, indoor films of a Kinect, 480 x 640.

    rgbd_dataset_freiburg1_desk/rgb/1305031452.791720.png
    rgbd_dataset_freiburg1_desk/depth/1305031452.805890.png      16 bits, 1/5000 m; 0 = none
    rgbd_dataset_freiburg1_desk/{rgb,depth}.txt                  `TIME FILE` a line, `#` comments

Sturm et al. 2012. Colour and depth were not taken at the same moments: images and maps are paired by time stamp, the
nearest first, each at most once, no further apart than `max_gap` (as the benchmark's associate.py does).
"""

from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, check_inside
from densevit.errors import DataError
from densevit.ops.geometry import pinhole

# The benchmark's calibration of its three cameras' colour images.
CAMERAS = {
    "freiburg1": pinhole(517.3, 516.5, 318.6, 255.3),
    "freiburg2": pinhole(520.9, 521.0, 325.1, 249.7),
    "freiburg3": pinhole(535.4, 539.2, 320.1, 247.6),
}


@DATASETS.register("tum")
class Tum(FileDataset):
    """TUM RGB-D."""

    depth_scale = 5000.0
    depth_range = (1e-3, 65535 / depth_scale)
    video = True
    sizes = frozenset([(480, 640)])

    def __init__(
        self,
        *,
        root: Root = None,
        sequences: tuple[str, ...] = (),
        max_gap: Annotated[float, Field(ge=0)] = 0.02,
        subset: Subset = "full",
    ) -> None:
        """Pairs the files of each sequence.

        Args:
            root: a folder of sequences, or one sequence; default `tum` (densevit.data.datasets.base.resolve_root).
            sequences: folders of the root; none names all.
            max_gap: seconds that may lie between an image and its depth.
        """
        self.root = resolve_root(root, "tum")
        samples = [files for folder in self._folders(sequences) for files in read_sequence(folder, max_gap)]
        super().__init__(samples, subset, f"tum in {self.root}")

    def _folders(self, sequences: tuple[str, ...]) -> list[Path]:
        if sequences:
            return [self.root / name for name in sequences]
        if (self.root / "rgb.txt").is_file():
            return [self.root]
        folders = sorted(path.parent for path in self.root.glob("*/rgb.txt"))
        if not folders:
            raise DataError(f"{self.root}: no sequence with an rgb.txt in it.")
        return folders

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"] | None:
        return next((matrix for name, matrix in CAMERAS.items() if name in files.name), None)


def read_sequence(folder: Path, max_gap: float) -> list[SampleFiles]:
    """The pairs of one sequence in order of time. Raises DataError if its lists are missing or damaged, or no two time
    stamps are near enough."""
    images, depths = read_stamps(folder / "rgb.txt"), read_stamps(folder / "depth.txt")
    pairs = associate(np.array(list(images)), np.array(list(depths)), max_gap)
    if not pairs:
        raise DataError(f"{folder}: no image and depth map within {max_gap} s of each other.")
    times = list(images), list(depths)
    samples = []
    for i, j in pairs:
        image, depth = images[times[0][i]], depths[times[1][j]]
        samples.append(SampleFiles(f"{folder.resolve().name}/{image.stem}", image, depth))
    return samples


def associate(
    first: Float64[np.ndarray, " n"], second: Float64[np.ndarray, " m"], max_gap: float
) -> list[tuple[int, int]]:
    """Pairs of positions whose times lie less than `max_gap` apart: the nearest first, none used twice; by time."""
    order = np.argsort(second, kind="stable")
    start = np.searchsorted(second[order], first - max_gap, "left")
    stop = np.searchsorted(second[order], first + max_gap, "right")
    near = [(i, int(order[k])) for i in range(len(first)) for k in range(start[i], stop[i])]
    gaps = {pair: abs(first[pair[0]] - second[pair[1]]) for pair in near}
    free_first, free_second = set(range(len(first))), set(range(len(second)))
    pairs = []
    for i, j in sorted((pair for pair in near if gaps[pair] < max_gap), key=lambda pair: (gaps[pair], pair)):
        if i in free_first and j in free_second:
            free_first.remove(i)
            free_second.remove(j)
            pairs.append((i, j))
    return sorted(pairs, key=lambda pair: first[pair[0]])


def read_stamps(path: Path) -> dict[float, Path]:
    """Time -> file of a sequence's list. Raises DataError naming the line that is none."""
    found: dict[float, Path] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the list cannot be read ({error}).") from error
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        try:
            found[float(words[0])] = path.parent / check_inside([words[1]], path)[0]
        except (ValueError, IndexError):
            raise DataError(f"{path}:{number}: expected TIME FILE, got {line[:80]!r}.") from None
    return found
