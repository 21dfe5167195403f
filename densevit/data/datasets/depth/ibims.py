"""`ibims`: iBims-1, 100 indoor photographs of 480 x 640 with a laser scanner's depth, to evaluate on.

    [ibims1_core_raw/]rgb/corridor_01.png
    [ibims1_core_raw/]depth/corridor_01.png           16 bits: stored * 50 / 65535 m
    [ibims1_core_raw/]mask_invalid/corridor_01.png    0 where the depth is not valid
    [ibims1_core_raw/]mask_transp/corridor_01.png     0 where something is transparent
    [ibims1_core_raw/]calib/corridor_01.txt           fx,fy,cx,cy
    imagelist.txt                                     the 100 names; optional, beside or in that folder

Koch, Liebel, Fraundorfer and Koerner 2018.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float64

from densevit.data.datasets.base import DATASETS, FileDataset, Root, read_numbers, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files, first_folder, read_names
from densevit.ops.geometry import pinhole

MASKS = ("mask_invalid", "mask_transp")


@DATASETS.register("ibims")
class Ibims(FileDataset):
    """iBims-1."""

    depth_scale = 65535 / 50

    depth_range = (1e-3, 50.0)
    sizes = frozenset([(480, 640)])

    def __init__(self, *, root: Root = None, subset: Subset = "full") -> None:
        """List the images."""
        self.root = resolve_root(root, "ibims")
        folder = first_folder(self.root, ("", "ibims1_core_raw"), "rgb")
        samples = [_files(folder, name) for name in _names(self.root, folder)]
        super().__init__(samples, subset, f"ibims in {folder}")

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"] | None:
        path = files.intrinsics
        return pinhole(*read_numbers(path, 4)) if isinstance(path, Path) and path.is_file() else None


def _files(folder: Path, name: str) -> SampleFiles:
    return SampleFiles(
        name,
        folder / f"rgb/{name}.png",
        folder / f"depth/{name}.png",
        masks=tuple(folder / mask / f"{name}.png" for mask in MASKS),
        intrinsics=folder / f"calib/{name}.txt",
    )


def _names(root: Path, folder: Path) -> list[str]:
    for path in (root / "imagelist.txt", folder / "imagelist.txt"):
        if path.is_file():
            return read_names(path)
    return [path.stem for path in find_files(folder, ["rgb/*.png"], "iBims-1's raw archive has them.")]
