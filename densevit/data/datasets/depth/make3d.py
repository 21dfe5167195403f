"""`make3d`: Make3D, 400 + 134 outdoor photographs of 2272 x 1704 (h x w) with a laser's coarse depth of 55 x 305.

    [Test134/]img-math7-p-139t0.jpg                               or Train400Img/
    [Gridlaserdata/]depth_sph_corr-math7-p-139t0.mat              or Test134Depth/, Train400Depth/

The .mat is MATLAB's older format: `Position3DGrid`, 55 x 305 x 4, of which the last is the depth in metres. A sample
holds it at the size of the image, each value over the pixels it stands for (41 x 6). Papers score depth under 70 m
(C1). Saxena, Sun and Ng 2009.
"""

from pathlib import Path
from typing import Annotated, Literal

import cv2
import numpy as np
from jaxtyping import Float32
from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files
from densevit.data.io import matlab
from densevit.data.io.readers import image_size
from densevit.data.io.samples import valid_depth
from densevit.errors import DataError
from densevit.structures import Box, Size

IMAGES = {"train": ("Train400Img", "Train400"), "test": ("Test134", "Test134Img")}
DEPTHS = {"train": ("Train400Depth",), "test": ("Gridlaserdata", "Test134Depth")}


@DATASETS.register("make3d")
class Make3d(FileDataset):
    """Make3D."""

    sizes = frozenset([(2272, 1704), (1704, 2272), (852, 1704)])

    def __init__(
        self,
        *,
        root: Root = None,
        split: Literal["train", "test"] = "train",
        crop: Literal["none", "band"] = "none",
        max_depth: Annotated[float, Field(gt=0)] = 70.0,
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            split: train (400) or test (134).
            crop: band keeps the middle rows, half as many as the image is wide, as the monodepth line scores.
            max_depth: metres beyond which depth is not valid: 70 is the papers' C1. The laser ends at about 81.
        """
        self.root = resolve_root(root, "make3d")
        self.crop = crop
        self.depth_range = (1e-3, max_depth)
        images = find_files(
            self.root, [f"{name}/img-*.jpg" for name in IMAGES[split]], f"as Make3D's '{split}' unpacks."
        )
        folders = [self.root / name for name in DEPTHS[split]]
        folder = next((path for path in folders if path.is_dir()), folders[0])
        super().__init__([_files(path, folder) for path in images], subset, f"make3d '{split}' in {self.root}")

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        h, w = image_size(files.image)
        depth = cv2.resize(read_grid(files.depth), (w, h), interpolation=cv2.INTER_NEAREST)
        return valid_depth(depth, depth <= self.depth_range[1])

    def crop_box(self, files: SampleFiles, size: Size) -> Box | None:
        h, w = size
        top = (h - w // 2) // 2
        return None if self.crop == "none" else (top, top + w // 2, 0, w)


def read_grid(path: Path) -> Float32[np.ndarray, "rows columns"]:
    """Return the laser's depths in metres. Raises DataError if it is damaged, or something else."""
    grid = matlab.load(path, "Position3DGrid")
    if grid.ndim != 3 or grid.shape[2] != 4 or grid.dtype.kind != "f":
        raise DataError(f"{path}: 'Position3DGrid' is {grid.dtype} of shape {grid.shape}; expected (55, 305, 4).")
    return np.ascontiguousarray(grid[..., 3], np.float32)


def _files(image: Path, folder: Path) -> SampleFiles:
    name = image.stem.removeprefix("img-")
    return SampleFiles(name, image, folder / f"depth_sph_corr-{name}.mat")
