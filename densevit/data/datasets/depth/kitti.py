"""`kitti`: the Eigen split on raw images with the improved annotated depth, and the official depth benchmark.

On disk, under `root` (five native sizes, 370 x 1224 to 376 x 1241; PNG, or JPG where a user converted):

    [raw/]2011_09_26/2011_09_26_drive_0001_sync/image_02/data/0000000005.png
    [raw/]2011_09_26/calib_cam_to_cam.txt                                      optional
    [data_depth_annotated/][train/|val/]2011_09_26_drive_0001_sync/proj_depth/groundtruth/image_02/0000000005.png
    [depth_selection/]val_selection_cropped/{image,groundtruth_depth,intrinsics}/
    [depth_selection/]test_depth_prediction_anonymous/{image,intrinsics}/

Depth is a 16-bit PNG of 1/256 m, 0 where there is none.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import Listing, MissingItem, SampleFiles, Subset, glob_visible, record_missing
from densevit.data.index.published_splits import read_list
from densevit.errors import DataError, located
from densevit.ops.crops import KB, kb_box
from densevit.ops.geometry import pinhole
from densevit.structures import Box, Size
from densevit.utils.json_files import read_text

Split = Literal["train", "test", "test_697", "selection", "anonymous"]
Camera = Literal["left", "right", "both"]

CAMERAS: dict[Camera, tuple[str, ...]] = {
    "left": ("image_02",),
    "right": ("image_03",),
    "both": ("image_02", "image_03"),
}

# Where people keep the two halves, under the root.
IMAGE_FOLDERS = ("", "raw", "raw_data", "kitti_raw", "data")
DEPTH_FOLDERS = (
    "data_depth_annotated/train",
    "data_depth_annotated/val",
    "data_depth_annotated",
    "train",
    "val",
    "gts",
    "",
)

# Benchmark split -> its folder and how many images it has.
BENCHMARK = {"selection": ("val_selection_cropped", 1000), "anonymous": ("test_depth_prediction_anonymous", 500)}


@DATASETS.register("kitti")
class Kitti(FileDataset):
    """KITTI depth prediction."""

    depth_scale = 256.0
    depth_range = (1e-3, 80.0)
    sizes = frozenset([(375, 1242), (370, 1226), (370, 1224), (374, 1238), (376, 1241), KB])
    typical_depth = (6.0, 35.0)
    typical_density = (0.02, 0.6)

    def __init__(
        self,
        *,
        root: Root = None,
        depth_root: Path | None = None,
        split: Split = "train",
        camera: Camera = "left",
        crop: Literal["none", "kb"] = "none",
        list_file: Path | None = None,
        subset: Subset = "full",
    ) -> None:
        """Find the folders and check that every file of the split is there.

        Args:
            depth_root: where the annotated depth is, when not under `root`.
            split: train (23,158 images), test (the 652 with ground truth), test_697 (with the 45 that have none),
                selection (the benchmark's 1000 for validation), anonymous (its 500 without ground truth).
            camera: which of the two colour cameras of the Eigen splits; the published lists name the left one.
            crop: kb keeps 352 x 1216 pixels, the bottom rows and the middle columns.
            list_file: an own list of `IMAGE DEPTH [FOCAL]` lines under `root`, instead of the Eigen split's.
        """
        self.root = resolve_root(root, "kitti")
        self.crop = crop
        self.video = split == "train"  # nearly every frame of its drives; the others are single images
        if split in BENCHMARK:
            samples = benchmark_samples(self.root, split)
            lacking = BENCHMARK[split][1] - len(samples)
            absent = MissingItem("missing", str(self.root), f"'{split}' lacks {lacking} of its images")
            if lacking > 0 and subset == "full" and not record_missing([absent]):
                raise DataError(f"{self.root}: '{split}' lacks {lacking} images; for a part set `subset: available`.")
        else:
            pairs = read_list(self.root, list_file, f"kitti_eigen_{split.partition('_')[0]}.txt.gz")
            taken = [(image, depth) for image, depth in pairs if depth or split == "test_697"]
            record_missing(
                MissingItem("no_ground_truth", image, "the published list has no depth for it")
                for image, depth in pairs
                if not depth
            )
            depths = resolve_root(depth_root, "kitti") if depth_root else self.root
            samples = eigen_samples(self.root, depths, taken, camera)
        super().__init__(samples, subset, f"kitti '{split}' in {self.root}")

    def crop_box(self, files: SampleFiles, size: Size) -> Box | None:
        if self.crop == "none":
            return None
        with located(files.image):
            return kb_box(size)

    def scene(self, index: int) -> str:
        return next((folder for folder in self.names[index].split("/") if folder.endswith("_sync")), "")


def eigen_samples(
    root: Path, depth_root: Path, pairs: list[tuple[str, str | None]], camera: Camera
) -> list[SampleFiles]:
    """Return the samples of a list, at the places where these roots keep them."""
    listing = Listing()

    @cache
    def image_folder(drive: str, side: str) -> Path:
        return _first_existing(root, IMAGE_FOLDERS, [f"{drive[:10]}/{drive}/{side}/data"])

    @cache
    def depth_folder(drive: str, side: str) -> Path:
        tail = f"{drive}/proj_depth/groundtruth/{side}"
        return _first_existing(depth_root, DEPTH_FOLDERS, [tail, f"{drive[:10]}/{tail}"])

    @cache
    def intrinsics(drive: str, side: str) -> Float64[np.ndarray, "3 3"] | None:
        return read_calibration(image_folder(drive, side).parents[2], side)

    samples = []
    for image, depth in pairs:
        drive, frame = _drive_and_frame(image)
        for side in CAMERAS[camera]:
            png = image_folder(drive, side) / f"{frame}.png"
            path_of_image = next((path for path in (png, png.with_suffix(".jpg")) if path in listing), png)
            depth_path = depth_folder(drive, side) / f"{frame}.png" if depth else None
            name = f"{drive[:10]}/{drive}/{side}/data/{frame}"
            samples.append(SampleFiles(name, path_of_image, depth_path, intrinsics=intrinsics(drive, side)))
    return samples


def benchmark_samples(root: Path, split: str) -> list[SampleFiles]:
    """Return the samples of the official benchmark's cropped images."""
    name = BENCHMARK[split][0]
    folders = [root, root / name, root / "depth_selection" / name]
    folder = next((path for path in folders if (path / "image").is_dir()), None)
    if folder is None:
        raise DataError(f"{root}: no {name}/image. It comes with the benchmark's 'depth_selection' archive.")
    samples = []
    for image in glob_visible(folder / "image", "*.png"):
        depth = folder / "groundtruth_depth" / image.name.replace("_sync_image_", "_sync_groundtruth_depth_")
        intrinsics = folder / "intrinsics" / f"{image.stem}.txt"
        samples.append(SampleFiles(image.stem, image, depth if split == "selection" else None, intrinsics=intrinsics))
    return samples


def _drive_and_frame(image: str) -> tuple[str, str]:
    folders = image.split("/")
    drive = next((folder for folder in folders if folder.endswith("_sync")), None)
    if drive is None:
        raise DataError(f"{image!r}: expected a KITTI path such as 2011_09_26/2011_09_26_drive_0001_sync/image_02/...")
    return drive, folders[-1].rpartition(".")[0]


def _first_existing(root: Path, folders: tuple[str, ...], tails: list[str]) -> Path:
    """Return the first path that exists; if none does, the first, so that messages name it."""
    paths = [root / folder / tail for folder in folders for tail in tails]
    return next((path for path in paths if path.is_dir()), paths[0])


# fx = fy, cx, cy of P_rect_02, which P_rect_03 shares, in each day's calib_cam_to_cam.txt.
INTRINSICS = {
    "2011_09_26": (721.5377, 609.5593, 172.8540),
    "2011_09_28": (707.0493, 604.0814, 180.5066),
    "2011_09_29": (718.3351, 600.3891, 181.5122),
    "2011_09_30": (707.0912, 601.8873, 183.1104),
    "2011_10_03": (718.8560, 607.1928, 185.2157),
}


def read_calibration(day: Path, camera: str) -> Float64[np.ndarray, "3 3"] | None:
    """Return the intrinsics of `image_02` or `image_03` on the day that the folder is named for: its calibration file's
    where there is one, else the table's, else None. Raises DataError if the calibration file does not hold the
    camera."""
    file = day / "calib_cam_to_cam.txt"
    if file.is_file():
        return _matrix(file, f"P_rect_{camera[-2:]}")
    if day.name not in INTRINSICS:
        return None
    focal, cx, cy = INTRINSICS[day.name]
    return pinhole(focal, focal, cx, cy)


def _matrix(file: Path, key: str) -> Float64[np.ndarray, "3 3"]:
    for line in read_text(file).splitlines():
        name, _, text = line.partition(":")
        if name.strip() == key:
            try:
                values = np.array([float(word) for word in text.split()])
            except ValueError:
                values = np.empty(0)
            if values.size != 12 or not np.isfinite(values).all():
                raise DataError(f"{file}: expected 12 numbers, got {text[:60]!r}.")
            return np.ascontiguousarray(values.reshape(3, 4)[:, :3])
    raise DataError(f"{file}: no '{key}' in it.")
