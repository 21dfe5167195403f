"""`scannet`: ScanNet's exported frames: rooms filmed with a depth sensor, colour 968 x 1296, depth 480 x 640.

    [scans/]scene0000_00/{color,depth}/0.{jpg,png}              depth: 16 bits, millimetres; 0 = none
    [scans/]scene0000_00/intrinsic/intrinsic_depth.txt          4 x 4
    [scannet_frames_25k/]scene0000_00/{color,depth}/000000.*    the small export; intrinsics_depth.txt in the scene
    [scans/]scene0000_00/pose/0.txt                             optional: 4 x 4, camera to world; inf where it was lost
    scannetv2_{train,val,test}.txt                              the official split, a scene a line

Dai et al. 2017. The two cameras were aligned by the recording; a sample has the size and the intrinsics of the depth
map, the colour image scaled to it by averaging.
"""

from pathlib import Path
from typing import Annotated, Literal

import cv2
import numpy as np
from jaxtyping import Float64, UInt8
from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, folder_of, read_matrix, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files, glob_visible, read_names
from densevit.data.io.readers import read_image
from densevit.data.io.samples import make_sample
from densevit.data.recordings.poses import read_pose_file
from densevit.errors import DataError
from densevit.structures import Sample

FOLDERS = ("scans/", "scannet_frames_25k/", "")
CAMERAS = ("intrinsic/intrinsic_depth.txt", "intrinsics_depth.txt")


@DATASETS.register("scannet")
class Scannet(FileDataset):
    """ScanNet."""

    depth_range = (1e-3, 10.0)
    depth_scale = 1000.0
    video = True

    def __init__(
        self,
        *,
        root: Root = None,
        split: Literal["all", "train", "val", "test"] = "all",
        every: Annotated[int, Field(ge=1)] = 1,
        subset: Subset = "full",
    ) -> None:
        """List the frames.

        Args:
            split: all takes every scene; the others those of `scannetv2_SPLIT.txt` under the root.
            every: takes only every n-th frame of a scene, beginning with the first.
        """
        self.root = resolve_root(root, "scannet")
        colors = find_files(self.root, [f"{folder}*/color" for folder in FOLDERS], "as ScanNet's exporter writes.")
        folder = colors[0].parents[1]
        listed = self.root / f"scannetv2_{split}.txt"  # comes with ScanNet's benchmark
        scenes = [path.parent.name for path in colors] if split == "all" else read_names(listed)
        samples = [files for scene in scenes for files in scene_files(folder / scene)[::every]]
        super().__init__(samples, subset, f"scannet '{split}' in {folder}")

    def read(self, index: int) -> Sample:
        files = self.samples[index]
        depth = self.decode_depth(files)
        assert depth is not None
        image = _resized(files, read_image(files.image), depth.shape)
        pose = self.decode_pose(files)
        return make_sample(files, image, depth=depth, intrinsics=self.decode_intrinsics(files), pose=pose)

    def decode_pose(self, files: SampleFiles) -> Float64[np.ndarray, "4 4"] | None:
        return read_pose_file(files.image.parents[1] / f"pose/{files.image.stem}.txt")

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"] | None:
        return read_matrix(files.intrinsics, 4) if isinstance(files.intrinsics, Path) else None

    def scene(self, index: int) -> str:
        return folder_of(self.names[index]).partition("_")[0]  # scene0000_00 and scene0000_01 show the same place


def scene_files(scene: Path) -> list[SampleFiles]:
    """Return the frames of one scene, by number."""
    camera = next((scene / name for name in CAMERAS if (scene / name).is_file()), None)
    images = sorted(glob_visible(scene, "color/*.jpg"), key=lambda path: (len(path.stem), path.stem))
    return [
        SampleFiles(f"{scene.name}/{image.stem}", image, scene / f"depth/{image.stem}.png", intrinsics=camera)
        for image in images or [scene / "color/0.jpg"]
    ]


def _resized(
    files: SampleFiles, image: UInt8[np.ndarray, "h w 3"], size: tuple[int, ...]
) -> UInt8[np.ndarray, "rows columns 3"]:
    """Return the colour image at the size of the depth map. Raises DataError if the two are of other shapes
    altogether."""
    (h, w), (rows, columns) = image.shape[:2], size
    if abs(h * columns / (w * rows) - 1) > 0.02:
        came = f"{files.image} is {h} x {w}, {files.depth} is {rows} x {columns}"
        raise DataError(f"sizes differ: {came}, of another shape.")
    return np.asarray(cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA))
