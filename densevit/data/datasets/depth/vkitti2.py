"""`vkitti2`: Virtual KITTI 2, five rendered drives in ten kinds of weather and view, 375 x 1242.

    [vkitti_2.0.3_rgb/]Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg
    [vkitti_2.0.3_depth/]Scene01/clone/frames/depth/Camera_0/depth_00000.png     16 bits, centimetres; 65535 = sky

Cabon, Murray and Humenberger 2020. Depth ends at 655.35 m, and what is there is sky: not valid.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, first_folder, search
from densevit.data.index.paths import Subset
from densevit.data.io.readers import read_depth, read_image
from densevit.ops.geometry import pinhole
from densevit.structures import Sample

SCALE = 100.0  # stored units per metre
SKY = np.float32(65535) / np.float32(SCALE)
INTRINSICS = pinhole(725.0087, 725.0087, 620.5, 187.0)  # of every frame (intrinsic.txt)

Camera = Literal["left", "right", "both"]
CAMERAS: dict[Camera, tuple[str, ...]] = {
    "left": ("Camera_0",),
    "right": ("Camera_1",),
    "both": ("Camera_0", "Camera_1"),
}


@DATASETS.register("vkitti2")
class VirtualKitti(Frames):
    """Virtual KITTI 2."""

    sizes = frozenset([(375, 1242)])
    maps_shared = True  # clone, fog, morning, overcast, rain and sunset are one geometry

    def __init__(
        self,
        *,
        root: Path | None = None,
        scenes: tuple[str, ...] = (),
        variations: tuple[str, ...] = (),
        camera: Camera = "left",
        max_depth: Annotated[float, Field(gt=0)] = 80.0,
        subset: Subset = "full",
    ) -> None:
        """Lists the frames.

        Args:
            root: default `vkitti2` (densevit.data.datasets.base.resolve_root).
            scenes: Scene01, Scene02, Scene06, Scene18, Scene20; none names all.
            variations: clone, fog, morning, overcast, rain, sunset, 15-deg-left, ...; none names all.
            camera: left (Camera_0), right or both.
            max_depth: metres beyond which depth is not valid; 80 is what papers evaluate to. The sky never is.
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "vkitti2")
        self.depth_range = (1e-3, max_depth)
        self.rgb = first_folder(self.root, ("vkitti_2.0.3_rgb",), "")
        self.truth = first_folder(self.root, ("vkitti_2.0.3_depth",), "")
        images = [
            path
            for scene in scenes or ("Scene*",)
            for variation in variations or ("*",)
            for side in CAMERAS[camera]
            for path in self._images(scene, variation, side)
        ]
        super().__init__([self._frame(path) for path in images], subset, f"vkitti2 in {self.root}")

    def _images(self, scene: str, variation: str, side: str) -> list[Path]:
        pattern = f"{scene}/{variation}/frames/rgb/{side}/rgb_*.jpg"
        return search(self.rgb, [pattern], "as vkitti_2.0.3_rgb.tar unpacks.")

    def _frame(self, image: Path) -> Frame:
        scene, variation, _, _, side, _ = image.relative_to(self.rgb).parts
        number = image.stem.removeprefix("rgb_")
        depth = self.truth / scene / variation / "frames/depth" / side / f"depth_{number}.png"
        return Frame(f"{scene}/{variation}/{side}/{number}", image, depth)

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        depth = read_depth(frame.depth, SCALE)
        valid = (depth < SKY) & (depth <= self.depth_range[1])
        return assemble(frame, read_image(frame.image), depth, valid=valid, intrinsics=INTRINSICS.copy())

    def scene(self, index: int) -> str:
        return self.names[index].partition("/")[0]  # all variations show the same drive
