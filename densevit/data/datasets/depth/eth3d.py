"""`eth3d`: ETH3D's high-resolution multi-view training set: 454 photographs of 13 scenes, laser-scanned.

    courtyard/images/dslr_images/DSC_0286.JPG                  4032 x 6048, as the lens saw it
    courtyard/ground_truth_depth/dslr_images/DSC_0286.JPG      no JPEG: 4-byte floats, row by row, metres; inf = none

Schoeps et al. 2017. The lens distorts, so that no 3 x 3 matrix is exact; intrinsics are left out.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.depth.frames import Frame, Frames, assemble, search
from densevit.data.index.paths import Subset
from densevit.data.io.readers import read_image
from densevit.errors import DataError
from densevit.structures import Sample


@DATASETS.register("eth3d")
class Eth3d(Frames):
    """ETH3D, high-resolution multi-view, training."""

    depth_range = (1e-3, 100.0)

    def __init__(self, *, root: Path | None = None, scenes: tuple[str, ...] = (), subset: Subset = "full") -> None:
        """Lists the images that have depth.

        Args:
            root: default `eth3d` (densevit.data.datasets.base.resolve_root).
            scenes: courtyard, delivery_area, ...; none names all.
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "eth3d")
        images = [path for scene in scenes or ("*",) for path in self._images(scene)]
        super().__init__([_frame(path) for path in images], subset, f"eth3d in {self.root}")

    def _images(self, scene: str) -> list[Path]:
        return search(self.root, [f"{scene}/images/dslr_images/*.JPG"], "as multi_view_training_dslr_jpg unpacks.")

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        image = read_image(frame.image)
        return assemble(frame, image, read_floats(frame.depth, (image.shape[0], image.shape[1])))


def read_floats(path: Path, size: tuple[int, int]) -> Float32[np.ndarray, "h w"]:
    """A file of nothing but floats.

    Raises:
        DataError: it cannot be read, or holds more or fewer than `size` (h, w) needs.
    """
    try:
        values = np.fromfile(path, "<f4")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    came, fits = path.stat().st_size, 4 * size[0] * size[1]
    if came != fits:
        raise DataError(f"{path}: {came:,} bytes; {size[0]} x {size[1]} floats are {fits:,}.")
    return values.reshape(size).astype(np.float32)


def _frame(image: Path) -> Frame:
    scene = image.parents[2]
    return Frame(f"{scene.name}/{image.stem}", image, scene / "ground_truth_depth/dslr_images" / image.name)
