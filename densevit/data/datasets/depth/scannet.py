"""`scannet`: ScanNet's exported frames: rooms filmed with a depth sensor, colour 968 x 1296, depth 480 x 640.

    [scans/]scene0000_00/{color,depth}/0.{jpg,png}              depth: 16 bits, millimetres; 0 = none
    [scans/]scene0000_00/intrinsic/intrinsic_depth.txt          4 x 4
    [scannet_frames_25k/]scene0000_00/{color,depth}/000000.*    the small export; intrinsics_depth.txt in the scene
    scannetv2_{train,val,test}.txt                              the official split, a scene a line

Dai et al. 2017. The two cameras were aligned by the recording; a sample has the size and the intrinsics of the depth
map, the colour image scaled to it by averaging.
"""

from pathlib import Path
from typing import Annotated, Literal

import cv2
import numpy as np
from jaxtyping import UInt8
from pydantic import Field

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, numbers, search, seen
from densevit.data.index.paths import Subset, inside
from densevit.data.io.readers import read_depth, read_image
from densevit.errors import DataError
from densevit.structures import Sample

SCALE = 1000.0  # stored units per metre
HOMES = ("scans/", "scannet_frames_25k/", "")
CAMERAS = ("intrinsic/intrinsic_depth.txt", "intrinsics_depth.txt")


@DATASETS.register("scannet")
class Scannet(Frames):
    """ScanNet."""

    depth_range = (1e-3, 10.0)

    def __init__(
        self,
        *,
        root: Path | None = None,
        split: Literal["all", "train", "val", "test"] = "all",
        every: Annotated[int, Field(ge=1)] = 1,
        subset: Subset = "full",
    ) -> None:
        """Lists the frames.

        Args:
            root: default `scannet` (densevit.data.datasets.base.resolve_root).
            split: all takes every scene; the others those of `scannetv2_SPLIT.txt` under the root.
            every: takes only each so-manieth frame of a scene, the first among them.
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "scannet")
        found = search(self.root, [f"{home}*/color" for home in HOMES], "as ScanNet's exporter writes.")
        self.home = found[0].parents[1]
        scenes = [path.parent.name for path in found]
        if split != "all":
            scenes = self._listed(split)
        frames = [frame for scene in scenes for frame in scene_frames(self.home / scene)[::every]]
        super().__init__(frames, subset, f"scannet '{split}' in {self.home}")

    def _listed(self, split: str) -> list[str]:
        path = self.root / f"scannetv2_{split}.txt"
        try:
            return inside(path.read_text().split(), path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read ({error}). It comes with ScanNet's benchmark.") from error

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        depth = read_depth(frame.depth, SCALE)
        matrix = np.array(numbers(frame.camera, 16)).reshape(4, 4)[:3, :3] if frame.camera else None
        return assemble(frame, _scaled(frame, read_image(frame.image), depth.shape), depth, intrinsics=matrix)

    def scene(self, index: int) -> str:
        return super().scene(index).partition("_")[0]  # scene0000_00 and scene0000_01 are one room


def scene_frames(scene: Path) -> list[Frame]:
    """The frames of one scene, by number."""
    camera = next((scene / name for name in CAMERAS if (scene / name).is_file()), None)
    images = sorted(seen(scene, "color/*.jpg"), key=lambda path: (len(path.stem), path.stem))
    return [
        Frame(f"{scene.name}/{image.stem}", image, scene / f"depth/{image.stem}.png", camera=camera)
        for image in images or [scene / "color/0.jpg"]
    ]


def _scaled(
    frame: Frame, image: UInt8[np.ndarray, "h w 3"], size: tuple[int, ...]
) -> UInt8[np.ndarray, "rows columns 3"]:
    """The colour image at the size of the depth map.

    Raises:
        DataError: the two are of other shapes altogether.
    """
    (h, w), (rows, columns) = image.shape[:2], size
    if abs(h * columns / (w * rows) - 1) > 0.02:
        came = f"{frame.image} is {h} x {w}, {frame.depth} is {rows} x {columns}"
        raise DataError(f"sizes differ: {came}, of another shape.")
    return np.asarray(cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA))
