"""`diode`: DIODE, indoor and outdoor photographs of 768 x 1024 with a laser scanner's dense depth.

    {train,val}/{indoors,outdoor}/scene_00019/scan_00183/00019_00183_indoors_000_010.png
    ..._depth.npy          float32, h x w x 1, metres along the optical axis
    ..._depth_mask.npy     h x w, 1 where the depth is valid

Vasiljevic et al. 2019.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, search, stem
from densevit.data.index.paths import Subset
from densevit.data.io.arrays import read_array
from densevit.data.io.images import MAX_PIXELS
from densevit.data.io.readers import read_depth, read_image
from densevit.errors import DataError
from densevit.ops.geometry import pinhole
from densevit.structures import Sample

INTRINSICS = pinhole(886.81, 927.06, 512.0, 384.0)  # the devkit's intrinsics.txt

Part = Literal["indoors", "outdoor", "both"]

# Metres that the scanner's ranges allow.
RANGES: dict[Part, tuple[float, float]] = {"indoors": (0.6, 50.0), "outdoor": (0.6, 350.0), "both": (0.6, 350.0)}


@DATASETS.register("diode")
class Diode(Frames):
    """DIODE."""

    sizes = frozenset([(768, 1024)])

    def __init__(
        self,
        *,
        root: Path | None = None,
        split: Literal["train", "val"] = "val",
        part: Part = "both",
        subset: Subset = "full",
    ) -> None:
        """Lists the images.

        Args:
            root: default `diode` (densevit.data.datasets.base.resolve_root).
            split: val has 325 images indoors and 446 outdoors.
            part: indoors, outdoor or both.
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "diode")
        self.depth_range = RANGES[part]
        where = "*" if part == "both" else part
        images = search(self.root, [f"{split}/{where}/scene_*/scan_*/*.png"], "as DIODE's archives unpack.")
        super().__init__([_frame(path, self.root) for path in images], subset, f"diode '{split}' in {self.root}")

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        depth = read_depth(frame.depth)
        mask = read_mask(frame.masks[0], depth.shape)
        return assemble(frame, read_image(frame.image), depth, valid=mask, intrinsics=INTRINSICS.copy())


def read_mask(path: Path, size: tuple[int, ...]) -> Bool[np.ndarray, "h w"]:
    """Where the depth is valid.

    Raises:
        DataError: it is damaged, of no numbers, or of another size than the depth map.
    """
    values = np.squeeze(read_array(path, "NPY", MAX_PIXELS))
    if values.shape != size or values.dtype.kind not in "biuf":
        raise DataError(f"{path}: {values.dtype} of shape {values.shape}; the depth map is {size[0]} x {size[1]}.")
    return values > 0


def _frame(image: Path, root: Path) -> Frame:
    beside = image.with_suffix("")
    return Frame(stem(image, root), image, Path(f"{beside}_depth.npy"), (Path(f"{beside}_depth_mask.npy"),))
