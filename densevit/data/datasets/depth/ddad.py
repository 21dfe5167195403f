"""`ddad`: DDAD (Dense Depth for Automated Driving) as evaluators export it: road images, LiDAR depth to 250 m.

    000000_rgb.png                 1216 x 1936; any folders above
    000000_depth.npy               float32 metres along the optical axis, 0 = none; or .npz with `depth`
    000000_intrinsics.txt          optional: 3 x 3

Guizilini et al. 2020. The original is a database of its own format; its devkit (TRI-ML/dgp) projects the points into
the front camera.
"""

from pathlib import Path

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files

IMAGE_SUFFIX = "_rgb.png"


@DATASETS.register("ddad")
class Ddad(FileDataset):
    """DDAD, exported."""

    depth_range = (1e-3, 250.0)

    def __init__(self, *, root: Root = None, subset: Subset = "full") -> None:
        """List the images."""
        self.root = resolve_root(root, "ddad")
        images = find_files(self.root, [f"**/*{IMAGE_SUFFIX}"], "export each frame as NAME_rgb.png and NAME_depth.npy.")
        super().__init__([self._files(path) for path in images], subset, f"ddad in {self.root}")

    def _files(self, image: Path) -> SampleFiles:
        stem = str(image).removesuffix(IMAGE_SUFFIX)
        packed = Path(f"{stem}_depth.npz")
        return SampleFiles(
            Path(stem).relative_to(self.root).as_posix(),
            image,
            packed if packed.is_file() else Path(f"{stem}_depth.npy"),
            intrinsics=Path(f"{stem}_intrinsics.txt"),
        )
