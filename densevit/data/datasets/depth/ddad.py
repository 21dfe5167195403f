"""`ddad`: DDAD (Dense Depth for Automated Driving) as evaluators export it: road images, LiDAR depth to 250 m.

    000000_rgb.png                 1216 x 1936; any folders above
    000000_depth.npy               float32 metres along the optical axis, 0 = none; or .npz with `depth`
    000000_intrinsics.txt          optional: 3 x 3

Guizilini et al. 2020. The original is a database of its own format; its devkit (TRI-ML/dgp) projects the points into
the front camera.
"""

from pathlib import Path

import numpy as np

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, numbers, search, stem
from densevit.data.index.paths import Subset
from densevit.data.io.readers import read_depth, read_image
from densevit.structures import Sample

END = "_rgb.png"


@DATASETS.register("ddad")
class Ddad(Frames):
    """DDAD, exported."""

    depth_range = (1e-3, 250.0)

    def __init__(self, *, root: Path | None = None, subset: Subset = "full") -> None:
        """Lists the images.

        Args:
            root: default `ddad` (densevit.data.datasets.base.resolve_root).
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "ddad")
        images = search(self.root, [f"**/*{END}"], "export each frame as NAME_rgb.png and NAME_depth.npy.")
        super().__init__([self._frame(path) for path in images], subset, f"ddad in {self.root}")

    def _frame(self, image: Path) -> Frame:
        beside = str(image).removesuffix(END)
        packed = Path(f"{beside}_depth.npz")
        depth = packed if packed.is_file() else Path(f"{beside}_depth.npy")
        name = stem(image, self.root).removesuffix("_rgb")
        return Frame(name, image, depth, camera=Path(f"{beside}_intrinsics.txt"))

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        matrix = np.array(numbers(frame.camera, 9)).reshape(3, 3) if frame.camera and frame.camera.is_file() else None
        return assemble(frame, read_image(frame.image), read_depth(frame.depth), intrinsics=matrix)
