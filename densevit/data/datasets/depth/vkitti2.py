"""`vkitti2`: Virtual KITTI 2, five rendered drives in ten kinds of weather and view, 375 x 1242.

    [vkitti_2.0.3_rgb/]Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg
    [vkitti_2.0.3_depth/]Scene01/clone/frames/depth/Camera_0/depth_00000.png     16 bits, centimetres; 65535 = sky

Cabon, Murray and Humenberger 2020. Depth ends at 655.35 m, and what is there is sky: not valid.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float32
from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files, first_folder
from densevit.data.io.samples import valid_depth
from densevit.ops.geometry import pinhole

SKY = np.float32(65535) / np.float32(100)
INTRINSICS = pinhole(725.0087, 725.0087, 620.5, 187.0)  # of every frame (intrinsic.txt)

Camera = Literal["left", "right", "both"]
CAMERAS: dict[Camera, tuple[str, ...]] = {
    "left": ("Camera_0",),
    "right": ("Camera_1",),
    "both": ("Camera_0", "Camera_1"),
}


@DATASETS.register("vkitti2")
class VirtualKitti(FileDataset):
    """Virtual KITTI 2."""

    depth_scale = 100.0

    sizes = frozenset([(375, 1242)])
    video = True
    maps_shared = True  # clone, fog, morning, overcast, rain and sunset are one geometry

    def __init__(
        self,
        *,
        root: Root = None,
        scenes: tuple[str, ...] = (),
        variations: tuple[str, ...] = (),
        camera: Camera = "left",
        max_depth: Annotated[float, Field(gt=0)] = 80.0,
        subset: Subset = "full",
    ) -> None:
        """List the frames.

        Args:
            scenes: Scene01, Scene02, Scene06, Scene18, Scene20; none names all.
            variations: clone, fog, morning, overcast, rain, sunset, 15-deg-left, ...; none names all.
            camera: left (Camera_0), right or both.
            max_depth: metres beyond which depth is not valid; 80 is what papers evaluate to. The sky never is.
        """
        self.root = resolve_root(root, "vkitti2")
        self.depth_range = (1e-3, max_depth)
        self.images = first_folder(self.root, ("vkitti_2.0.3_rgb",), "")
        self.depths = first_folder(self.root, ("vkitti_2.0.3_depth",), "")
        images = [
            path
            for scene in scenes or ("Scene*",)
            for variation in variations or ("*",)
            for side in CAMERAS[camera]
            for path in self._images(scene, variation, side)
        ]
        super().__init__([self._files(path) for path in images], subset, f"vkitti2 in {self.root}")

    def _images(self, scene: str, variation: str, side: str) -> list[Path]:
        pattern = f"{scene}/{variation}/frames/rgb/{side}/rgb_*.jpg"
        return find_files(self.images, [pattern], "as vkitti_2.0.3_rgb.tar unpacks.")

    def _files(self, image: Path) -> SampleFiles:
        scene, variation, _, _, side, _ = image.relative_to(self.images).parts
        number = image.stem.removeprefix("rgb_")
        depth = self.depths / scene / variation / "frames/depth" / side / f"depth_{number}.png"
        return SampleFiles(f"{scene}/{variation}/{side}/{number}", image, depth, intrinsics=INTRINSICS)

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        depth = self.read_depth_file(files.depth, self.depth_scale)
        return valid_depth(depth, (depth < SKY) & (depth <= self.depth_range[1]))

    def scene(self, index: int) -> str:
        return self.names[index].partition("/")[0]  # all variations show the same drive
