"""`eth3d`: ETH3D's high-resolution multi-view training set: 454 photographs of 13 scenes, laser-scanned.

    courtyard/images/dslr_images/DSC_0286.JPG                  4032 x 6048, as the lens saw it
    courtyard/ground_truth_depth/dslr_images/DSC_0286.JPG      no JPEG: 4-byte floats, row by row, metres; inf = none

Schoeps et al. 2017. The lens distorts, so that no 3 x 3 matrix is exact; intrinsics are left out.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files
from densevit.data.io.images import read_bytes
from densevit.data.io.readers import image_size
from densevit.data.io.samples import valid_depth
from densevit.errors import DataError
from densevit.structures import Size


@DATASETS.register("eth3d")
class Eth3d(FileDataset):
    """ETH3D, high-resolution multi-view, training."""

    depth_range = (1e-3, 100.0)

    def __init__(self, *, root: Root = None, scenes: tuple[str, ...] = (), subset: Subset = "full") -> None:
        """List the images that have depth.

        Args:
            scenes: courtyard, delivery_area, ...; none names all.
        """
        self.root = resolve_root(root, "eth3d")
        images = [path for scene in scenes or ("*",) for path in self._images(scene)]
        super().__init__([_files(path) for path in images], subset, f"eth3d in {self.root}")

    def _images(self, scene: str) -> list[Path]:
        return find_files(self.root, [f"{scene}/images/dslr_images/*.JPG"], "as multi_view_training_dslr_jpg unpacks.")

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        return valid_depth(read_floats(files.depth, image_size(files.image)))


def read_floats(path: Path, size: Size) -> Float32[np.ndarray, "h w"]:
    """Return a file of float32 values without a header. Raises DataError if it cannot be read, or holds more or fewer
    than `size` (h, w) needs."""
    data, expected = read_bytes(path), 4 * size[0] * size[1]
    if len(data) != expected:
        raise DataError(f"{path}: {len(data):,} bytes; {size[0]} x {size[1]} floats are {expected:,}.")
    return np.frombuffer(data, "<f4").reshape(size).astype(np.float32)


def _files(image: Path) -> SampleFiles:
    scene = image.parents[2]
    return SampleFiles(f"{scene.name}/{image.stem}", image, scene / "ground_truth_depth/dslr_images" / image.name)
