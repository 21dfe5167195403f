"""`sunrgbd`: SUN RGB-D, 10,335 indoor images of four sensors (Kinect v1 and v2, RealSense, Xtion), depth to 8 m.

    [SUNRGBD/]kv2/kinect2data/000002_2014-05-26_14-23-37_260595134347_rgbf000103-resize/
        image/0000103.jpg
        depth/0000103.png           16 bits, millimetres turned by 3 bits: stored = mm << 3 | mm >> 13; 0 = none
        depth_bfx/0000103.png       the same with holes filled
        intrinsics.txt              3 x 3
    SUNRGBDtoolbox/traintestSUNRGBD/allsplit.mat        the official split: 5,285 and 5,050 folders

Song, Lichtenberg and Xiao 2015. Images of all sensors are already of their depth maps' sizes.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float32, UInt16
from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, check_inside, find_files, first_folder, glob_visible
from densevit.data.io import matlab
from densevit.data.io.images import Raster
from densevit.data.io.samples import valid_depth
from densevit.errors import DataError

Split = Literal["all", "train", "test"]
SPLITS = "SUNRGBDtoolbox/traintestSUNRGBD/allsplit.mat"
DEPTH_FOLDERS = {"raw": "depth", "filled": "depth_bfx"}


@DATASETS.register("sunrgbd")
class SunRgbd(FileDataset):
    """SUN RGB-D."""

    depth_range = (1e-3, 8.0)

    def __init__(
        self,
        *,
        root: Root = None,
        split: Split = "test",
        depth: Literal["raw", "filled"] = "raw",
        max_depth: Annotated[float, Field(gt=0)] = 8.0,
        subset: Subset = "full",
    ) -> None:
        """List the folders of a split and the two files in each.

        Args:
            split: all takes every folder; train and test are those of the toolbox's `allsplit.mat`.
            depth: raw, or with holes filled (`depth_bfx`).
            max_depth: metres beyond which depth is not valid; the toolbox, too, distrusts more than 8.
        """
        self.root = resolve_root(root, "sunrgbd")
        self.max_depth = max_depth
        folder = first_folder(self.root, ("", "SUNRGBD"), "kv1")
        samples = [_files(folder, name, DEPTH_FOLDERS[depth]) for name in _folders(self.root, folder, split)]
        super().__init__(samples, subset, f"sunrgbd '{split}' in {folder}")

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        depth = read_rotated(files.depth)
        return valid_depth(depth, depth <= self.max_depth)

    def scene(self, index: int) -> str:
        return ""  # neighbouring folders may show one room; nothing says which


def read_rotated(path: Path) -> Float32[np.ndarray, "h w"]:
    """Return the metres of a depth map as SUN RGB-D stores it. Raises DataError if it is damaged, or no 16-bit PNG."""
    stored = Raster.open(path).stored()
    if stored.dtype != np.uint16 or stored.ndim != 2:
        raise DataError(f"{path}: {stored.dtype} of shape {stored.shape}; expected one channel of 16 bits.")
    return rotate_right(stored).astype(np.float32) / np.float32(1000)


def rotate_right(stored: UInt16[np.ndarray, "h w"]) -> UInt16[np.ndarray, "h w"]:
    """Return millimetres: the 16 bits turned right by three (the toolbox's read3dPoints)."""
    return (stored >> np.uint16(3)) | (stored << np.uint16(13))


def _folders(root: Path, folder: Path, split: Split) -> list[str]:
    if split == "all":
        images = find_files(folder, ["**/image/*.jpg"], "as SUNRGBD.zip unpacks.")
        return [path.parents[1].relative_to(folder).as_posix() for path in images]
    path = next((p for p in (root / SPLITS, folder.parent / SPLITS, root / "allsplit.mat") if p.is_file()), None)
    if path is None:
        raise DataError(f"{root / SPLITS}: no such file. It comes with SUNRGBDtoolbox.zip; or set `split: all`.")
    cells = matlab.load(path, f"all{split}").ravel()
    return check_inside((str(cell.item()).rpartition("/SUNRGBD/")[2].strip("/") for cell in cells), path)


def _files(folder: Path, name: str, depth_folder: str) -> SampleFiles:
    return SampleFiles(
        name,
        _only(folder / name / "image", "*.jpg"),
        _only(folder / name / depth_folder, "*.png"),
        intrinsics=folder / name / "intrinsics.txt",
    )


def _only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder; where there is none, a path that says so when it is missed."""
    return next(iter(glob_visible(folder, pattern)), folder / pattern)
