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
from jaxtyping import Bool

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, first_folder, numbers, search
from densevit.data.datasets.segmentation.label_images import listed_names
from densevit.data.index.paths import Subset
from densevit.data.io.readers import read_depth, read_image, read_labels
from densevit.errors import DataError
from densevit.ops.geometry import pinhole
from densevit.structures import Sample

SCALE = 65535 / 50  # stored units per metre
MASKS = ("mask_invalid", "mask_transp")


@DATASETS.register("ibims")
class Ibims(Frames):
    """iBims-1."""

    depth_range = (1e-3, 50.0)
    sizes = frozenset([(480, 640)])

    def __init__(self, *, root: Path | None = None, subset: Subset = "full") -> None:
        """Lists the images.

        Args:
            root: default `ibims` (densevit.data.datasets.base.resolve_root).
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "ibims")
        home = first_folder(self.root, ("", "ibims1_core_raw"), "rgb")
        frames = [self._frame(home, name) for name in _names(self.root, home)]
        super().__init__(frames, subset, f"ibims in {home}")

    @staticmethod
    def _frame(home: Path, name: str) -> Frame:
        masks = tuple(home / mask / f"{name}.png" for mask in MASKS)
        return Frame(name, home / f"rgb/{name}.png", home / f"depth/{name}.png", masks, home / f"calib/{name}.txt")

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        depth = read_depth(frame.depth, SCALE)
        valid = np.ones(depth.shape, np.bool_)
        for path in frame.masks:
            valid &= _mask(path, depth.shape)
        camera = frame.camera if frame.camera and frame.camera.is_file() else None
        matrix = pinhole(*numbers(camera, 4)) if camera else None
        return assemble(frame, read_image(frame.image), depth, valid=valid, intrinsics=matrix)


def _names(root: Path, home: Path) -> list[str]:
    for path in (root / "imagelist.txt", home / "imagelist.txt"):
        if path.is_file():
            return listed_names(path)
    return [path.stem for path in search(home, ["rgb/*.png"], "iBims-1's raw archive has them.")]


def _mask(path: Path, shape: tuple[int, ...]) -> Bool[np.ndarray, "h w"]:
    mask = read_labels(path) > 0
    if mask.shape != shape:
        raise DataError(f"{path}: {mask.shape[0]} x {mask.shape[1]}, while the depth map is {shape[0]} x {shape[1]}.")
    return mask
