"""KITTI on disk: a drive with its annotated depth, and the depth benchmark's cropped images."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from densevit.data.datasets.depth.kitti import INTRINSICS
from densevit.data.io.writers import encode, encode_depth
from densevit.data.synthetic.layouts.common import measured, number, put
from densevit.ops.geometry import pinhole
from densevit.structures import Sample
from densevit.utils.atomic_io import write_text


def write_kitti(
    root: Path,
    samples: Iterable[Sample],
    *,
    date: str = "2011_09_26",
    drive: int = 1,
    camera: Literal["image_02", "image_03"] = "image_02",
    part: Literal["train", "val"] = "train",
) -> Path:
    """One KITTI drive: raw images, annotated depth, and the day's calibration from the first sample's intrinsics.

    Returns:
        the list of what was written, for the data set's `list_file`.
    """
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


def write_kitti_selection(root: Path, samples: Iterable[Sample], *, truth: bool = True) -> None:
    """The depth benchmark's cropped images: `val_selection_cropped`, or without truth the anonymous test images."""
    home = root / "depth_selection" / ("val_selection_cropped" if truth else "test_depth_prediction_anonymous")
    for i, sample in enumerate(samples):
        name = f"2011_09_26_drive_0002_sync_image_{i:010d}_image_02" if truth else f"{i:010d}"
        put(home / "image" / f"{name}.png", encode(".png", sample.image))
        if sample.intrinsics is not None:
            row = " ".join(f"{x:.6f}" for x in sample.intrinsics.ravel())
            put(home / "intrinsics" / f"{name}.txt", row.encode())
        if truth:
            depth = home / "groundtruth_depth" / f"{name.replace('_image_', '_groundtruth_depth_', 1)}.png"
            put(depth, encode_depth(measured(sample), 256.0))


def _calibration(sample: Sample, date: str) -> str:
    focal, cx, cy = INTRINSICS.get(date, INTRINSICS["2011_09_26"])
    matrix = pinhole(focal, focal, cx, cy) if sample.intrinsics is None else sample.intrinsics
    row = " ".join(f"{x:.6e}" for x in np.hstack([matrix, np.zeros((3, 1))]).ravel())
    return "calib_time: 09-Jan-2012 13:57:47\n" + "".join(f"P_rect_0{i}: {row}\n" for i in (2, 3))
