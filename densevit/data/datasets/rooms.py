"""`rooms`: furnished rooms that do not exist, with exact depth. Synthetic: a score on it says nothing of photographs.

`datasets/prepare_rooms.py` makes it. On disk, with w x h images:

    dataset.json                      version, seed, size, frames, depth_scale, classes, scenes per split
    {train,val,test}/scene_00000/
        rgb_00.jpg                    8-bit RGB
        depth_00.png                  16-bit, 5000 units per metre along the optical axis; 0 = none
        labels_00.png                 8-bit, position in CLASSES; 255 = ignore
        instances_00.png              16-bit; 0 = walls, floor and ceiling, from 1 on each thing of the scene
        intrinsics.json               one 3x3 matrix per frame; the centre of the first pixel is (0, 0)
        normals_00.png                with --normals: 16-bit RGB, (n + 1) / 2 * 65535, of the unit normal in camera
                                      axes (right, down, forward), towards the camera; (0, 0, 0) = none
        poses.json                    with --views or --fps: one 4x4 matrix per frame, camera to world, metres, z up
        flow_00.png                   with --fps: to the next frame, 16-bit (data/io/writers.py); the last has none

With `fps` in dataset.json, the frames of a scene are a walk.
With `views` in dataset.json, that many frames after each other show one place: 00 and 01, 02 and 03, ... for 2.
Splits share no scene. A frame depends on (seed, split, scene, frame, size, mount, fov, variety) alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Classes, FileDataset, resolve_root
from densevit.data.index.paths import SampleFiles
from densevit.data.io.readers import read_labels
from densevit.data.labels.class_lists import table_of_names
from densevit.errors import DataError
from densevit.ops.segments import segments_of_labels
from densevit.utils.json_files import checked, read_json, read_object

Split = Literal["train", "val", "test"]

VERSION = 1
DEPTH_SCALE = 5000.0
CLASSES = (
    "wall", "floor", "ceiling", "door", "window", "picture", "rug", "bed", "sofa", "chair", "table", "cabinet",
    "shelf", "appliance", "plant", "lamp", "television", "object",
)  # fmt: skip
PALETTE = (
    (190, 190, 200), (130, 95, 65), (235, 235, 225), (150, 75, 0), (135, 206, 235), (255, 105, 180), (200, 60, 60),
    (65, 105, 225), (0, 128, 128), (255, 165, 0), (218, 165, 32), (110, 60, 140), (85, 107, 47), (112, 128, 144),
    (34, 139, 34), (255, 255, 0), (30, 30, 60), (220, 20, 60),
)  # fmt: skip


@DATASETS.register("rooms")
class Rooms(FileDataset):
    """The `rooms` data set as `datasets/prepare_rooms.py` writes it."""

    depth_scale = DEPTH_SCALE
    depth_range = (0.01, 65535 / DEPTH_SCALE)
    classes = CLASSES
    palette = PALETTE
    things = range(3, len(CLASSES))
    table = table_of_names(CLASSES, "the table of rooms", PALETTE)

    def __init__(
        self,
        *,
        root: Path | None = None,
        split: Split = "train",
        limit: int | None = None,
        instances: bool = False,
    ) -> None:
        """Read the list of frames, not the frames. Raises DataError if there is no such data set, or it is not
        complete.

        Args:
            root: the folder of `dataset.json`; default `rooms` (densevit.data.datasets.base.resolve_root).
            limit: use only the first n frames.
            instances: read the segments, too: each thing by itself, and walls, floor and ceiling as stuff.
        """
        self.root = resolve_root(root, "rooms")
        meta = checked(Meta, read_meta(self.root), self.root / "dataset.json")
        self.instances = instances
        self.views, self.fps = meta.views, meta.fps
        self.video = self.fps is not None
        frames, scenes = meta.frames * self.views, meta.scenes.get(split, 0)
        if not scenes:
            raise DataError(f"{self.root / 'dataset.json'}: no '{split}' scenes. Make some with prepare_rooms.py.")
        folders = [f"{split}/{scene_name(scene)}" for scene in range(scenes)]
        missing = [folder for folder in folders if not (self.root / folder).is_dir()]
        if missing:
            raise DataError(
                f"{self.root}: {len(missing)} of {scenes} '{split}' scenes are missing, {missing[0]} first. "
                "Run datasets/prepare_rooms.py with the same arguments again; it makes what is not there."
            )
        self.names = [f"{folder}/{frame:02d}" for folder in folders for frame in range(frames)][:limit]
        self.samples = [
            SampleFiles(
                name,
                frame_path(self.root, name, "rgb", "jpg"),
                depth=frame_path(self.root, name, "depth", "png"),
                labels=frame_path(self.root, name, "labels", "png"),
                normals=frame_path(self.root, name, "normals", "png") if meta.normals else None,
            )
            for name in self.names
        ]

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"]:
        return read_matrix(self.root, files.name, "intrinsics", 3)

    def decode_classes(self, files: SampleFiles, size: tuple[int, ...]) -> Classes:
        labels = self.decode_labels(files)
        if labels is None or not self.instances:
            return labels, None
        objects = read_labels(frame_path(self.root, files.name, "instances", "png"))
        return labels, segments_of_labels(labels, objects, self.things)

    def decode_pose(self, files: SampleFiles) -> Float64[np.ndarray, "4 4"] | None:
        return read_matrix(self.root, files.name, "poses", 4) if self.views > 1 or self.fps else None


def scene_name(scene: int) -> str:
    return f"scene_{scene:05d}"


def frame_path(root: Path, name: str, what: str, suffix: str) -> Path:
    folder, frame = name.rsplit("/", 1)
    return root / folder / f"{what}_{frame}.{suffix}"


@dataclass(frozen=True)
class Meta:
    """What reading needs of `dataset.json`."""

    frames: Annotated[int, Field(ge=1, le=100_000)]
    scenes: Mapping[str, Annotated[int, Field(ge=0, le=100_000)]]
    views: Annotated[int, Field(ge=1, le=1_000)] = 1
    fps: Annotated[float, Field(gt=0)] | None = None
    normals: bool = False


def read_meta(root: Path) -> dict[str, Any]:
    """Return the content of `dataset.json`. Raises DataError if it is not there, is no JSON, or is of another
    version."""
    path = root / "dataset.json"
    if not path.is_file():
        raise DataError(f"{path}: not found, so {root} is no `rooms` data set. Make one: prepare_rooms.py.")
    meta = read_object(path)
    version = meta.get("version")
    if version != VERSION:
        raise DataError(f"{path}: version {version}; this densevit reads {VERSION}. Make it anew with --overwrite.")
    return meta


def read_matrix(root: Path, name: str, what: str, side: int) -> Float64[np.ndarray, "n n"]:
    """Return a frame's matrix in `intrinsics.json` or `poses.json` of its scene. Raises DataError if it is not there,
    or of another shape."""
    folder, frame = name.rsplit("/", 1)
    path = root / folder / f"{what}.json"
    try:
        matrix = np.array(read_json(path)[int(frame)], dtype=np.float64)
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: no {what} of frame {frame} ({error}).") from error
    if matrix.shape != (side, side):
        raise DataError(f"{path}: frame {frame} has {what} of shape {matrix.shape}, not {side}x{side}.")
    return matrix
