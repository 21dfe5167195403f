"""`kitti`: the Eigen split on raw images with the improved annotated depth, and the official depth benchmark.

On disk, under `root` (five native sizes, 370 x 1224 to 376 x 1241; PNG, or JPG where a user converted):

    [raw/]2011_09_26/2011_09_26_drive_0001_sync/image_02/data/0000000005.png
    [raw/]2011_09_26/calib_cam_to_cam.txt                                      optional
    [data_depth_annotated/][train/|val/]2011_09_26_drive_0001_sync/proj_depth/groundtruth/image_02/0000000005.png
    [depth_selection/]val_selection_cropped/{image,groundtruth_depth,intrinsics}/
    [depth_selection/]test_depth_prediction_anonymous/{image,intrinsics}/

Depth is a 16-bit PNG of 1/256 m, 0 where there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64

from densevit.data.datasets.base import DATASETS, Dataset, resolve_root
from densevit.data.datasets.depth.frames import seen
from densevit.data.index.paths import Listing, MissingItem, Subset, keep_present, note
from densevit.data.index.published_splits import read_list
from densevit.data.io.samples import read_pair
from densevit.errors import DataError
from densevit.ops.geometry import pinhole
from densevit.structures import Sample, cut

Split = Literal["train", "test", "test_697", "selection", "anonymous"]
Camera = Literal["left", "right", "both"]

SCALE = 256.0  # stored units per metre
CROP = (352, 1216)  # of the benchmark ("KB crop"): bottom rows, middle columns

CAMERAS: dict[Camera, tuple[str, ...]] = {
    "left": ("image_02",),
    "right": ("image_03",),
    "both": ("image_02", "image_03"),
}

# Where people keep the two halves, under the root.
IMAGE_HOMES = ("", "raw", "raw_data", "kitti_raw", "data")
DEPTH_HOMES = (
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


@dataclass(frozen=True)
class Frame:
    """One image of the data set, by its files."""

    name: str
    image: Path
    depth: Path | None
    intrinsics: Float64[np.ndarray, "3 3"] | Path | None

    def files(self) -> list[Path]:
        return [self.image] if self.depth is None else [self.image, self.depth]


@DATASETS.register("kitti")
class Kitti(Dataset):
    """KITTI depth prediction."""

    depth_range = (1e-3, 80.0)
    sizes = frozenset([(375, 1242), (370, 1226), (370, 1224), (374, 1238), (376, 1241), CROP])
    typical_depth = (6.0, 35.0)
    typical_density = (0.02, 0.6)

    def __init__(
        self,
        *,
        root: Path | None = None,
        depth_root: Path | None = None,
        split: Split = "train",
        camera: Camera = "left",
        crop: Literal["none", "kb"] = "none",
        list_file: Path | None = None,
        subset: Subset = "full",
    ) -> None:
        """Finds the folders and checks that every file of the split is there.

        Args:
            root: default `kitti` (densevit.data.datasets.base.resolve_root).
            depth_root: where the annotated depth is, when not under `root`.
            split: train (23,158 images), test (the 652 with truth), test_697 (with the 45 that have none),
                selection (the benchmark's 1000 for validation), anonymous (its 500 without truth).
            camera: of the Eigen splits' two colour cameras; the published lists name the left one.
            crop: kb cuts to 352 x 1216 (rows from H - 352, columns from int((W - 1216) / 2)).
            list_file: an own list of `IMAGE DEPTH [FOCAL]` lines under `root`, instead of the Eigen split's.
            subset: `available` goes on with the samples that are there, and says how many are not.

        Raises:
            DataError: nothing is there, or not all and `subset` is full; with the count and the first five.
        """
        self.root = resolve_root(root, "kitti")
        self.crop = crop
        if split in BENCHMARK:
            frames = benchmark_frames(self.root, split)
            lacking = BENCHMARK[split][1] - len(frames)
            absent = MissingItem("missing", str(self.root), f"'{split}' lacks {lacking} of its images")
            if lacking > 0 and subset == "full" and not note([absent]):
                raise DataError(f"{self.root}: '{split}' lacks {lacking} images; for a part set `subset: available`.")
        else:
            pairs = read_list(self.root, list_file, f"kitti_eigen_{split.partition('_')[0]}.txt.gz")
            wanted = [(image, depth) for image, depth in pairs if depth or split == "test_697"]
            note(
                MissingItem("no_truth", image, "the published list has no depth for it")
                for image, depth in pairs
                if not depth
            )
            frames = eigen_frames(
                self.root, resolve_root(depth_root, "kitti") if depth_root else self.root, wanted, camera
            )
        self.frames = keep_present(frames, Frame.files, subset, f"kitti '{split}' in {self.root}")
        self.names = [frame.name for frame in self.frames]

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        matrix = benchmark_camera(frame.intrinsics) if isinstance(frame.intrinsics, Path) else frame.intrinsics
        sample = read_pair(frame.name, frame.image, frame.depth, SCALE, intrinsics=matrix)
        return sample if self.crop == "none" else kb_crop(sample, frame.image)

    def files(self, index: int) -> Mapping[str, Path]:
        frame = self.frames[index]
        return {"image": frame.image} if frame.depth is None else {"image": frame.image, "depth": frame.depth}

    def scene(self, index: int) -> str:
        return next((part for part in self.names[index].split("/") if part.endswith("_sync")), "")


def kb_crop(sample: Sample, path: Path) -> Sample:
    """The benchmark's window of a raw frame.

    Raises:
        DataError: the image is smaller than the window.
    """
    (h, w), (height, width) = sample.image.shape[:2], CROP
    if h < height or w < width:
        raise DataError(f"{path}: {h} x {w} is too small for the KB crop of {height} x {width}; set `crop: none`.")
    top, left = h - height, int((w - width) / 2)
    return cut(sample, top, h, left, left + width)


def eigen_frames(root: Path, depth_root: Path, pairs: list[tuple[str, str | None]], camera: Camera) -> list[Frame]:
    """Frames of a list, at the places where this root keeps them."""
    listing = Listing()

    @cache
    def image_folder(drive: str, side: str) -> Path:
        return _home(root, IMAGE_HOMES, [f"{drive[:10]}/{drive}/{side}/data"])

    @cache
    def depth_folder(drive: str, side: str) -> Path:
        tail = f"{drive}/proj_depth/groundtruth/{side}"
        return _home(depth_root, DEPTH_HOMES, [tail, f"{drive[:10]}/{tail}"])

    @cache
    def intrinsics(drive: str, side: str) -> Float64[np.ndarray, "3 3"] | None:
        return day_camera(image_folder(drive, side).parents[2], side)

    frames = []
    for image, depth in pairs:
        drive, frame = _drive_and_frame(image)
        for side in CAMERAS[camera]:
            png = image_folder(drive, side) / f"{frame}.png"
            found = next((p for p in (png, png.with_suffix(".jpg")) if p in listing), png)
            truth = depth_folder(drive, side) / f"{frame}.png" if depth else None
            name = f"{drive[:10]}/{drive}/{side}/data/{frame}"
            frames.append(Frame(name, found, truth, intrinsics(drive, side)))
    return frames


def benchmark_frames(root: Path, split: str) -> list[Frame]:
    """Frames of the official benchmark's cropped images."""
    folder = BENCHMARK[split][0]
    homes = [root, root / folder, root / "depth_selection" / folder]
    home = next((h for h in homes if (h / "image").is_dir()), None)
    if home is None:
        raise DataError(f"{root}: no {folder}/image. It comes with the benchmark's 'depth_selection' archive.")
    frames = []
    for image in seen(home / "image", "*.png"):
        truth = home / "groundtruth_depth" / image.name.replace("_sync_image_", "_sync_groundtruth_depth_")
        camera = home / "intrinsics" / f"{image.stem}.txt"
        depth = truth if split == "selection" else None
        frames.append(Frame(image.stem, image, depth, camera if camera.is_file() else None))
    return frames


def _drive_and_frame(image: str) -> tuple[str, str]:
    parts = image.split("/")
    drive = next((part for part in parts if part.endswith("_sync")), None)
    if drive is None:
        raise DataError(f"{image!r}: expected a KITTI path such as 2011_09_26/2011_09_26_drive_0001_sync/image_02/...")
    return drive, parts[-1].rpartition(".")[0]


def _home(root: Path, homes: tuple[str, ...], tails: list[str]) -> Path:
    """The first of the places that is there; where none is, the first, so that the report names it."""
    places = [root / home / tail for home in homes for tail in tails]
    return next((place for place in places if place.is_dir()), places[0])


# fx = fy, cx, cy of P_rect_02, which P_rect_03 shares, in each day's calib_cam_to_cam.txt.
INTRINSICS = {
    "2011_09_26": (721.5377, 609.5593, 172.8540),
    "2011_09_28": (707.0493, 604.0814, 180.5066),
    "2011_09_29": (718.3351, 600.3891, 181.5122),
    "2011_09_30": (707.0912, 601.8873, 183.1104),
    "2011_10_03": (718.8560, 607.1928, 185.2157),
}


def day_camera(day: Path, camera: str) -> Float64[np.ndarray, "3 3"] | None:
    """Intrinsics of `image_02` or `image_03` on the day that the folder is named for: its calibration file's
    where there is one, else the table's, else None.

    Raises:
        DataError: the calibration file does not hold the camera.
    """
    file = day / "calib_cam_to_cam.txt"
    if file.is_file():
        return _matrix(file, f"P_rect_{camera[-2:]}")
    if day.name not in INTRINSICS:
        return None
    focal, cx, cy = INTRINSICS[day.name]
    return pinhole(focal, focal, cx, cy)


def benchmark_camera(file: Path) -> Float64[np.ndarray, "3 3"]:
    """Intrinsics of one cropped benchmark image: nine numbers, row by row."""
    return _numbers(file, file.read_text(), 9).reshape(3, 3)


def _matrix(file: Path, key: str) -> Float64[np.ndarray, "3 3"]:
    for line in file.read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == key:
            return np.ascontiguousarray(_numbers(file, values, 12).reshape(3, 4)[:, :3])
    raise DataError(f"{file}: no '{key}' in it.")


def _numbers(file: Path, text: str, count: int) -> Float64[np.ndarray, " n"]:
    try:
        numbers = np.array([float(word) for word in text.split()])
    except ValueError:
        numbers = np.empty(0)
    if numbers.size != count or not np.isfinite(numbers).all():
        raise DataError(f"{file}: expected {count} numbers, got {text[:60]!r}.")
    return numbers
