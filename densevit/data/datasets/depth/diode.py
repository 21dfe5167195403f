"""`diode`: DIODE, indoor and outdoor photographs of 768 x 1024 with a laser scanner's dense depth.

    {train,val}/{indoors,outdoor}/scene_00019/scan_00183/00019_00183_indoors_000_010.png
    ..._depth.npy          float32, h x w x 1, metres along the optical axis
    ..._depth_mask.npy     h x w, 1 where the depth is valid

Vasiljevic et al. 2019.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files
from densevit.data.io.arrays import read_array
from densevit.data.io.images import MAX_PIXELS
from densevit.data.io.samples import valid_depth
from densevit.errors import DataError
from densevit.ops.geometry import pinhole

INTRINSICS = pinhole(886.81, 927.06, 512.0, 384.0)  # the devkit's intrinsics.txt

Part = Literal["indoors", "outdoor", "both"]

# Metres that the scanner's ranges allow.
RANGES: dict[Part, tuple[float, float]] = {"indoors": (0.6, 50.0), "outdoor": (0.6, 350.0), "both": (0.6, 350.0)}


@DATASETS.register("diode")
class Diode(FileDataset):
    """DIODE."""

    sizes = frozenset([(768, 1024)])

    def __init__(
        self,
        *,
        root: Root = None,
        split: Literal["train", "val"] = "val",
        part: Part = "both",
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            split: val has 325 images indoors and 446 outdoors.
            part: indoors, outdoor or both.
        """
        self.root = resolve_root(root, "diode")
        self.depth_range = RANGES[part]
        scenes = "*" if part == "both" else part
        images = find_files(self.root, [f"{split}/{scenes}/scene_*/scan_*/*.png"], "as DIODE's archives unpack.")
        super().__init__([_files(path, self.root) for path in images], subset, f"diode '{split}' in {self.root}")

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        depth = self.read_depth_file(files.depth)
        return valid_depth(depth, read_mask(files.masks[0], depth.shape))


def read_mask(path: Path, size: tuple[int, ...]) -> Bool[np.ndarray, "h w"]:
    """Return where the depth is valid. Raises DataError if it is damaged, of no numbers, or of another size than the
    depth map."""
    values = np.squeeze(read_array(path, "NPY", MAX_PIXELS))
    if values.shape != size or values.dtype.kind not in "biuf":
        raise DataError(f"{path}: {values.dtype} of shape {values.shape}; the depth map is {size[0]} x {size[1]}.")
    return values > 0


def _files(image: Path, root: Path) -> SampleFiles:
    stem = image.with_suffix("")
    return SampleFiles(
        stem.relative_to(root).as_posix(),
        image,
        Path(f"{stem}_depth.npy"),
        masks=(Path(f"{stem}_depth_mask.npy"),),
        intrinsics=INTRINSICS,
    )
