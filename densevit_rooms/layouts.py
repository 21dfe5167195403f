"""Writes samples in the layouts of NYU Depth v2 (the labelled .mat, the published folders) and KITTI.

`write_as` renders rooms into them, to test the readers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.depth.kitti import INTRINSICS
from densevit.data.datasets.rooms import CLASSES
from densevit.data.io import matlab
from densevit.data.io.writers import encode, encode_depth
from densevit.errors import DataError
from densevit.ops.geometry import pinhole
from densevit.structures import Sample
from densevit.utils.atomic_io import write_bytes, write_text
from densevit.utils.output import tqdm
from densevit_rooms.generate import check_numbers
from densevit_rooms.renderer import render_scene

Layout = Literal["nyu", "nyu_labeled", "kitti"]

# Horizontal fields of view in degrees: 2 atan(w / 2f), f = 518.86 of 640 pixels and 721.54 of 1242.
FOV: dict[str, float] = {"nyu": 63.32, "nyu_labeled": 63.32, "kitti": 81.43}
SIZES: dict[str, tuple[int, int]] = {"nyu": (480, 640), "nyu_labeled": (480, 640), "kitti": (375, 1242)}


def put(path: Path, data: bytes) -> None:
    """Write a file, making its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)


def measured(sample: Sample) -> Float32[np.ndarray, "h w"]:
    """Return the metres, 0 where not valid."""
    if sample.depth is None or sample.valid is None:
        raise ValueError(f"'{sample.name}' has no depth to write.")
    return np.where(sample.valid, sample.depth, np.float32(0))


def number(name: str, position: int) -> int:
    """Return the number that ends a sample's name, or its position."""
    digits = Path(name).name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else position


def write_nyu_labeled(
    path: Path,
    samples: Sequence[Sample],
    *,
    classes: Sequence[str] = (),
    chunks: Literal["frame", "across"] = "frame",
) -> None:
    """Write samples as `nyu_depth_v2_labeled.mat` has them; holes of `rawDepths` are filled in `depths`.

    Args:
        classes: the class of each label id; label 255 becomes 0, unlabelled.
        chunks: frame stores each frame by itself; across cuts through frames, which reads slowly.
    """
    height, width = samples[0].image.shape[:2]
    shapes = {
        "images": (3, width, height),
        "rawDepths": (width, height),
        "depths": (width, height),
        "labels": (width, height),
    }
    types = {"images": np.uint8, "rawDepths": np.float32, "depths": np.float32, "labels": np.uint16}
    with matlab.create(path) as file:
        for key, shape in shapes.items():
            across = (min(8, len(samples)), *(1 for _ in shape[:-2]), width // 4, height // 4)
            file.create_dataset(
                key,
                (len(samples), *shape),
                types[key],
                chunks=(1, *shape) if chunks == "frame" else across,
                compression="gzip",
                compression_opts=3,
            )
        for i, sample in enumerate(samples):
            for key, frame in _frame(sample).items():
                file[key][i] = frame
        matlab.write_texts(file, "names", classes or ("unknown",))
        matlab.write_texts(file, "sceneTypes", [Path(s.name).parent.name or "room" for s in samples])


def write_nyu_sync(root: Path, samples: Iterable[Sample], split: Literal["train", "test"] = "train") -> Path:
    """Return the published NYU folders: `sync/SCENE/rgb_00045.jpg` to train, `official_splits/test/...` to test.
    Returns the list of what was written, for the data set's `list_file`."""
    home = Path("sync" if split == "train" else "official_splits/test")
    slash = "/" if split == "train" else ""  # as in the two published lists
    lines = []
    for i, sample in enumerate(samples):
        folder, stem = _scene(sample.name, i)
        image, depth = f"{folder}/rgb_{stem}.jpg", f"{folder}/sync_depth_{stem}.png"
        put(root / home / image, encode(".jpg", sample.image))
        put(root / home / depth, encode_depth(measured(sample), 1000.0))
        lines.append(f"{slash}{image} {slash}{depth} 518.8579\n")
    write_text(root / f"nyu_sync_{split}.txt", "".join(lines))
    return root / f"nyu_sync_{split}.txt"


def _frame(sample: Sample) -> dict[str, np.ndarray]:
    """Return one sample as the file's arrays, axes reversed."""
    if sample.depth is None or sample.valid is None:
        raise ValueError(f"'{sample.name}' has no depth to write.")
    raw = np.where(sample.valid, sample.depth, np.float32(0))
    labels = (
        np.zeros(raw.shape, np.int64) if sample.labels is None else np.where(sample.labels == 255, 0, sample.labels + 1)
    )
    return {"images": sample.image.transpose(2, 1, 0), "rawDepths": raw.T, "depths": fill(raw).T, "labels": labels.T}


def fill(depth: Float32[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """Fill every hole (0) with the value of the nearest pixel that has one; stands for the official file's
    inpainting."""
    holes = (depth == 0).astype(np.uint8)
    if holes.all():
        return depth
    _, nearest = cv2.distanceTransformWithLabels(holes, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    values = np.zeros(int(nearest.max()) + 1, np.float32)
    values[nearest[holes == 0]] = depth[holes == 0]
    return values[nearest]


def _scene(name: str, position: int) -> tuple[str, str]:
    """Return the folder and five-digit number of a sample: its own where its name has them."""
    folder = Path(name).parent.as_posix().replace("/", "_")
    return ("scene_0001" if folder == "." else folder), f"{number(name, position):05d}"


def write_kitti(
    root: Path,
    samples: Iterable[Sample],
    *,
    date: str = "2011_09_26",
    drive: int = 1,
    camera: Literal["image_02", "image_03"] = "image_02",
    part: Literal["train", "val"] = "train",
) -> Path:
    """Return one KITTI drive: raw images, annotated depth, and the day's calibration from the first sample's
    intrinsics. Returns the list of what was written, for the data set's `list_file`."""
    name = f"{date}_drive_{drive:04d}_sync"
    truth = root / "data_depth_annotated" / part / name / "proj_depth/groundtruth" / camera
    lines = []
    for i, sample in enumerate(samples):
        if i == 0:
            put(root / "raw" / date / "calib_cam_to_cam.txt", _calibration(sample, date).encode())
        frame = f"{number(sample.name, i):010d}.png"
        image = f"{date}/{name}/{camera}/data/{frame}"
        put(root / "raw" / image, encode(".png", sample.image))
        put(truth / frame, encode_depth(measured(sample), 256.0))
        lines.append(f"{image} {name}/proj_depth/groundtruth/{camera}/{frame} 721.5377\n")
    write_text(root / f"kitti_{name}_{camera}.txt", "".join(lines))
    return root / f"kitti_{name}_{camera}.txt"


def _calibration(sample: Sample, date: str) -> str:
    focal, cx, cy = INTRINSICS.get(date, INTRINSICS["2011_09_26"])
    matrix = pinhole(focal, focal, cx, cy) if sample.intrinsics is None else sample.intrinsics
    row = " ".join(f"{x:.6e}" for x in np.hstack([matrix, np.zeros((3, 1))]).ravel())
    return "calib_time: 09-Jan-2012 13:57:47\n" + "".join(f"P_rect_0{i}: {row}\n" for i in (2, 3))


@dataclass(frozen=True)
class Rendering:
    """Parameters of the rendering of all splits."""

    scenes: Mapping[str, int]
    frames: int
    size: tuple[int, int]  # h, w
    seed: int
    fov: float  # degrees
    progress: bool

    def scene(self, split: str, scene: int) -> Iterator[Sample]:
        frames = render_scene(self.seed, split, scene, self.frames, self.size, fov=self.fov)
        return (frame.sample for frame in frames)

    def split(self, split: str) -> Iterator[Sample]:
        bar = tqdm(range(self.scenes.get(split, 0)), desc=split, unit="scene", disable=not self.progress)
        for scene in bar:
            yield from self.scene(split, scene)


def write_as(
    layout: Layout,
    root: Path,
    scenes: Mapping[str, int],
    frames: int = 4,
    size: tuple[int, int] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> None:
    """Render into another data set's layout: one camera for all frames, and val written where that set keeps its test.
    Raises DataError if `root` is not empty, the numbers make no sense, or embreex is not installed.

    Args:
        layout: nyu (the "sync" folders), nyu_labeled (the .mat file, val after train), kitti (one drive per scene).
        scenes: how many for each of train and val.
        size: (h, w) in pixels; None is the data set's own.
    """
    size = size or SIZES[layout]
    check_numbers(scenes, frames, size, seed)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(f"{root}: is not an empty folder. Choose another; nothing is overwritten.")
    root.mkdir(parents=True, exist_ok=True)
    WRITERS[layout](root, Rendering(scenes, frames, size, seed, FOV[layout], progress))


def _nyu(root: Path, rendering: Rendering) -> None:
    write_nyu_sync(root, rendering.split("train"), "train")
    write_nyu_sync(root, rendering.split("val"), "test")


def _nyu_labeled(root: Path, rendering: Rendering) -> None:
    samples = [*rendering.split("train"), *rendering.split("val")]
    write_nyu_labeled(root / "nyu_depth_v2_labeled.mat", samples, classes=CLASSES)


def _kitti(root: Path, rendering: Rendering) -> None:
    drive = 1
    for split, part in (("train", "train"), ("val", "val")):
        for scene in tqdm(range(rendering.scenes.get(split, 0)), desc=split, disable=not rendering.progress):
            write_kitti(root, rendering.scene(split, scene), drive=drive, part=part)  # type: ignore[arg-type]
            drive += 1


WRITERS = {"nyu": _nyu, "nyu_labeled": _nyu_labeled, "kitti": _kitti}
