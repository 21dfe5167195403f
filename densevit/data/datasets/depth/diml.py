"""`diml`: DIML/CVT RGB-D, indoor rooms (Kinect v2) and outdoor streets (stereo).

    [test/]LR/05. Classroom/color/in_05_160401_114351_c.png
    [test/]LR/05. Classroom/depth_filled/in_05_160401_114351_depth_filled.png     16 bits, millimetres
    [test/]Park/outleft/160826_1.png
    [test/]Park/depthmap/160826_1.png                                             16 bits, millimetres

Kim et al. 2018; Cho et al. 2021. Scored indoors from 0 to 10 m, outdoors from 2 to 80 m (ZoeDepth's loaders).
"""

from pathlib import Path
from typing import Literal

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, first_folder, search
from densevit.data.index.paths import Subset
from densevit.data.io.readers import read_depth, read_image
from densevit.structures import Sample

SCALE = 1000.0  # stored units per metre
RANGES = {"indoor": (1e-3, 10.0), "outdoor": (2.0, 80.0)}


@DATASETS.register("diml")
class Diml(Frames):
    """DIML/CVT RGB-D."""

    def __init__(
        self,
        *,
        root: Path | None = None,
        part: Literal["indoor", "outdoor"] = "indoor",
        split: Literal["train", "test"] = "test",
        resolution: Literal["LR", "HR"] = "LR",
        subset: Subset = "full",
    ) -> None:
        """Lists the images.

        Args:
            root: default `diml` (densevit.data.datasets.base.resolve_root).
            part: indoor or outdoor.
            split: the folder of that name, where the root has one; else the root itself.
            resolution: of the indoor images: LR is 756 x 1344, HR 1080 x 1920.
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "diml")
        self.depth_range = RANGES[part]
        home = first_folder(self.root, (f"{part}/{split}", part, split), "")
        pattern = f"{resolution}/*/color/*_c.png" if part == "indoor" else "*/outleft/*.png"
        images = search(home, [pattern], f"as DIML's {part} archives unpack.")
        make = _indoor if part == "indoor" else _outdoor
        super().__init__([make(path) for path in images], subset, f"diml '{part}' in {home}")

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        return assemble(frame, read_image(frame.image), read_depth(frame.depth, SCALE))


def _indoor(image: Path) -> Frame:
    scene, name = image.parents[1], image.stem.removesuffix("_c")
    return Frame(f"{scene.name}/{name}", image, scene / "depth_filled" / f"{name}_depth_filled.png")


def _outdoor(image: Path) -> Frame:
    scene = image.parents[1]
    return Frame(f"{scene.name}/{image.stem}", image, scene / "depthmap" / image.name)
