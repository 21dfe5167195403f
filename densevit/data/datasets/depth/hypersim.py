"""`hypersim`: Hypersim, 77,400 rendered indoor images of 768 x 1024.

    ai_001_001/images/scene_cam_00_final_preview/frame.0000.tonemap.jpg
    ai_001_001/images/scene_cam_00_geometry_hdf5/frame.0000.depth_meters.hdf5    `dataset`: float, NaN = none
    metadata_images_split_scene_v1.csv                                           the official split

Roberts et al. 2021. The files hold the distance along each pixel's ray, in metres; a sample holds depth along the
optical axis, z = d f / sqrt(x^2 + y^2 + f^2) with x and y pixels from the middle and f = 886.81 at width 1024 (a view
of 60 degrees, which all public evaluations use; scenes with a shifted lens are treated alike).
"""

import csv
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Float64

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, check_inside, find_files
from densevit.data.io.arrays import read_array
from densevit.data.io.images import MAX_PIXELS, file_format
from densevit.data.io.readers import image_size
from densevit.data.io.samples import valid_depth
from densevit.errors import DataError
from densevit.ops.geometry import pinhole

FOCAL = 886.81  # pixels at width 1024
SPLITS = "metadata_images_split_scene_v1.csv"
PATTERN = "ai_*/images/scene_cam_*_final_preview/frame.*.tonemap.jpg"


@DATASETS.register("hypersim")
class Hypersim(FileDataset):
    """Hypersim."""

    depth_range = (1e-3, 80.0)
    sizes = frozenset([(768, 1024)])

    def __init__(
        self,
        *,
        root: Root = None,
        split: Literal["all", "train", "val", "test"] = "all",
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            split: all takes what is there; the others are those of the official table, public images only.
        """
        self.root = resolve_root(root, "hypersim")
        images = (
            find_files(self.root, [PATTERN], "as its download script writes.")
            if split == "all"
            else self._listed(split)
        )
        super().__init__([_files(path) for path in images], subset, f"hypersim '{split}' in {self.root}")

    def _listed(self, split: str) -> list[Path]:
        path = self.root / SPLITS
        try:
            with open(path, newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["split_partition_name"] == split]
            images = [_image(row) for row in rows if row["included_in_public_release"] == "True"]
        except (OSError, KeyError, ValueError, csv.Error) as error:
            raise DataError(f"{path}: cannot be read as Hypersim's table of splits ({error}).") from error
        return [self.root / image for image in check_inside(images, path)]

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        return valid_depth(planar_depth(read_distance(files.depth)))

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"]:
        h, w = image_size(files.image)
        focal = FOCAL * w / 1024
        return pinhole(focal, focal, (w - 1) / 2, (h - 1) / 2)


def read_distance(path: Path) -> Float[np.ndarray, "h w"]:
    """Return the metres along each ray, as stored. Raises DataError if it is damaged, or something else."""
    kind = file_format(path)
    if kind != "HDF5":
        raise DataError(f"{path}: is {kind or 'unknown'}, not HDF5.")
    values = read_array(path, kind, MAX_PIXELS)
    if values.ndim != 2 or values.dtype.kind != "f":
        raise DataError(f"{path}: {values.dtype} of shape {values.shape}; expected h x w floats.")
    return values


def planar_depth(distance: Float[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """Return the depth along the optical axis."""
    return np.asarray((distance.astype(np.float32) * cosines(*distance.shape)).astype(np.float32))


@cache
def cosines(h: int, w: int) -> Float32[np.ndarray, "h w"]:
    """Return the cosine of the angle between each pixel's ray and the optical axis."""
    focal = FOCAL * w / 1024
    x, y = np.arange(w) - (w - 1) / 2, np.arange(h)[:, None] - (h - 1) / 2
    return (focal / np.sqrt(x**2 + y**2 + focal**2)).astype(np.float32)


def _image(row: dict[str, str]) -> str:
    frame = f"frame.{int(row['frame_id']):04d}.tonemap.jpg"
    return f"{row['scene_name']}/images/scene_{row['camera_name']}_final_preview/{frame}"


def _files(image: Path) -> SampleFiles:
    camera = image.parent.name.removesuffix("_final_preview")
    number = image.name.removesuffix(".tonemap.jpg")
    depth = image.parents[1] / f"{camera}_geometry_hdf5" / f"{number}.depth_meters.hdf5"
    return SampleFiles(f"{image.parents[2].name}/{camera}/{number.replace('.', '_')}", image, depth)
