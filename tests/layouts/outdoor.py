"""Outdoor and mixed data sets to evaluate on, on disk: DIODE, ETH3D, Sintel, DDAD, Virtual KITTI 2, Make3D."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import cv2
import numpy as np

from densevit.data.datasets.depth import sintel, vkitti2
from densevit.data.io.writers import encode, encode_depth
from densevit.structures import Sample
from layouts.common import matrix_text, measured, number, parted, put
from layouts.encoders import mat, npy


def write_diode(
    root: Path, samples: Iterable[Sample], split: Literal["train", "val"] = "val", part: str = "indoors"
) -> None:
    """`SPLIT/PART/scene_00019/scan_00183/`: PNG, float32 depth of h x w x 1, float mask."""
    home = root / split / part / "scene_00019/scan_00183"
    for i, sample in enumerate(samples):
        name = f"00019_00183_{part}_{number(sample.name, i):03d}_000"
        depth = measured(sample)
        put(home / f"{name}.png", encode(".png", sample.image))
        put(home / f"{name}_depth.npy", npy(depth[..., None]))
        put(home / f"{name}_depth_mask.npy", npy((depth > 0).astype(np.float64)))


def write_eth3d(root: Path, samples: Iterable[Sample]) -> None:
    """`SCENE/images/dslr_images/` and headerless floats under `SCENE/ground_truth_depth/`, inf where not valid."""
    for sample in samples:
        scene, file = parted(sample.name)
        depth = measured(sample)
        put(root / scene / f"images/dslr_images/{file}.JPG", encode(".jpg", sample.image))
        stored = np.where(depth > 0, depth, np.float32(np.inf)).astype("<f4")
        put(root / scene / f"ground_truth_depth/dslr_images/{file}.JPG", stored.tobytes())


def write_sintel(root: Path, samples: Iterable[Sample], look: Literal["final", "clean"] = "final") -> None:
    """`training/LOOK/`, `training/depth/` and `training/camdata_left/`; 1e9 m where not valid, as a sky."""
    for sample in samples:
        scene, file = parted(sample.name)
        depth = measured(sample)
        h, w = depth.shape
        stored = np.where(depth > 0, depth, np.float32(1e9)).astype("<f4")
        tag = struct.pack("<f", sintel.TAG)
        put(root / f"training/{look}/{scene}/{file}.png", encode(".png", sample.image))
        put(root / f"training/depth/{scene}/{file}.dpt", tag + struct.pack("<ii", w, h) + stored.tobytes())
        if sample.intrinsics is not None:
            pose = np.eye(3, 4, dtype="<f8").tobytes()
            camera = tag + sample.intrinsics.astype("<f8").tobytes() + pose
            put(root / f"training/camdata_left/{scene}/{file}.cam", camera)


def write_ddad(root: Path, samples: Iterable[Sample]) -> None:
    """`NAME_rgb.png`, `NAME_depth.npy` and `NAME_intrinsics.txt`."""
    for sample in samples:
        put(root / f"{sample.name}_rgb.png", encode(".png", sample.image))
        put(root / f"{sample.name}_depth.npy", npy(measured(sample)))
        if sample.intrinsics is not None:
            put(root / f"{sample.name}_intrinsics.txt", matrix_text(sample))


def write_vkitti2(root: Path, samples: Iterable[Sample], scene: str = "Scene01", variation: str = "clone") -> None:
    """`SCENE/VARIATION/frames/{rgb,depth}/Camera_0/`; centimetres, 65535 where not valid."""
    home = root / scene / variation / "frames"
    for i, sample in enumerate(samples):
        frame, depth = f"{number(sample.name, i):05d}", measured(sample)
        centimetres = np.where(
            depth > 0, np.rint(depth * vkitti2.VirtualKitti.depth_scale).clip(1, 65535), 65535
        ).astype(np.uint16)
        put(home / f"rgb/Camera_0/rgb_{frame}.jpg", encode(".jpg", sample.image))
        put(home / f"depth/Camera_0/depth_{frame}.png", encode(".png", centimetres))


def write_make3d(root: Path, samples: Iterable[Sample], split: Literal["train", "test"] = "test") -> None:
    """`Test134/` and `Gridlaserdata/`, or `Train400Img/` and `Train400Depth/`; depth on a grid of 55 x 305."""
    images, depths = ("Test134", "Gridlaserdata") if split == "test" else ("Train400Img", "Train400Depth")
    for sample in samples:
        file = parted(sample.name)[1]
        grid = np.zeros((55, 305, 4))
        grid[..., 3] = cv2.resize(measured(sample), (305, 55), interpolation=cv2.INTER_NEAREST)
        put(root / images / f"img-{file}.jpg", encode(".jpg", sample.image))
        put(root / depths / f"depth_sph_corr-{file}.mat", mat(Position3DGrid=grid))


def write_kitti_selection(root: Path, samples: Iterable[Sample], *, truth: bool = True) -> None:
    """Write the depth benchmark's cropped images: `val_selection_cropped`, or without truth the anonymous test
    images."""
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
