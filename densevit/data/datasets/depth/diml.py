"""`diml`: DIML/CVT RGB-D, indoor rooms (Kinect v2) and outdoor streets (stereo).

    [test/]LR/05. Classroom/color/in_05_160401_114351_c.png
    [test/]LR/05. Classroom/depth_filled/in_05_160401_114351_depth_filled.png     16 bits, millimetres
    [test/]Park/outleft/160826_1.png
    [test/]Park/depthmap/160826_1.png                                             16 bits, millimetres

Kim et al. 2018; Cho et al. 2021. Scored indoors from 0 to 10 m, outdoors from 2 to 80 m (ZoeDepth's loaders).
"""

from pathlib import Path
from typing import Literal

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files, first_folder

RANGES = {"indoor": (1e-3, 10.0), "outdoor": (2.0, 80.0)}


@DATASETS.register("diml")
class Diml(FileDataset):
    """DIML/CVT RGB-D."""

    depth_scale = 1000.0

    def __init__(
        self,
        *,
        root: Root = None,
        part: Literal["indoor", "outdoor"] = "indoor",
        split: Literal["train", "test"] = "test",
        resolution: Literal["LR", "HR"] = "LR",
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            part: indoor or outdoor.
            split: the folder of that name, where the root has one; else the root itself.
            resolution: size of the indoor images: LR is 756 x 1344, HR 1080 x 1920.
        """
        self.root = resolve_root(root, "diml")
        self.depth_range = RANGES[part]
        folder = first_folder(self.root, (f"{part}/{split}", part, split), "")
        pattern = f"{resolution}/*/color/*_c.png" if part == "indoor" else "*/outleft/*.png"
        images = find_files(folder, [pattern], f"as DIML's {part} archives unpack.")
        files_of = _indoor if part == "indoor" else _outdoor
        super().__init__([files_of(path) for path in images], subset, f"diml '{part}' in {folder}")


def _indoor(image: Path) -> SampleFiles:
    scene, name = image.parents[1], image.stem.removesuffix("_c")
    return SampleFiles(f"{scene.name}/{name}", image, scene / "depth_filled" / f"{name}_depth_filled.png")


def _outdoor(image: Path) -> SampleFiles:
    scene = image.parents[1]
    return SampleFiles(f"{scene.name}/{image.stem}", image, scene / "depthmap" / image.name)
