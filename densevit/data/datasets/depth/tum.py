"""`tum`: TUM RGB-D sequences, indoor videos of a Kinect, 480 x 640.

    rgbd_dataset_freiburg1_desk/rgb/1305031452.791720.png
    rgbd_dataset_freiburg1_desk/depth/1305031452.805890.png      16 bits, 1/5000 m; 0 = none
    rgbd_dataset_freiburg1_desk/{rgb,depth}.txt                  `TIME FILE` a line, `#` comments
    rgbd_dataset_freiburg1_desk/groundtruth.txt                  optional: poses, `TIME TX TY TZ QX QY QZ QW` a line

Sturm et al. 2012. Colour and depth were not taken at the same moments: images and maps are paired by time stamp, the
nearest first, each at most once, no further apart than `max_gap` (as the benchmark's associate.py does).
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import Subset
from densevit.data.recordings.cameras import Camera, distortion_of, model_of_matrix
from densevit.data.recordings.layouts import read_tum
from densevit.errors import DataError
from densevit.ops.geometry import pinhole

log = logging.getLogger(__name__)

# The benchmark's calibration of its three cameras' colour images; those of freiburg3 were published undistorted.
CAMERAS = {
    "freiburg1": pinhole(517.3, 516.5, 318.6, 255.3),
    "freiburg2": pinhole(520.9, 521.0, 325.1, 249.7),
    "freiburg3": pinhole(535.4, 539.2, 320.1, 247.6),
}
LENSES = {
    "freiburg1": (0.2624, -0.9531, -0.0054, 0.0026, 1.1633),
    "freiburg2": (0.2312, -0.7849, -0.0033, -0.0001, 0.9172),
}


@DATASETS.register("tum")
class Tum(FileDataset):
    """TUM RGB-D."""

    depth_scale = 5000.0
    depth_range = (1e-3, 65535 / depth_scale)
    video = True
    sizes = frozenset([(480, 640)])

    def __init__(
        self,
        *,
        root: Root = None,
        sequences: tuple[str, ...] = (),
        camera: Literal["freiburg1", "freiburg2", "freiburg3"] | None = None,
        undistort: bool = True,
        max_gap: Annotated[float, Field(ge=0)] = 0.02,
        subset: Subset = "full",
    ) -> None:
        """Pair the files of each sequence.

        Args:
            root: a folder of sequences, or one sequence; default `tum` (densevit.data.datasets.base.resolve_root).
            sequences: folders of the root; none names all.
            camera: which of the benchmark's three took the images; default: the one in the folder's name.
            undistort: images and depth, by the published coefficients; false takes them as they are, as published
                evaluations of depth do.
            max_gap: seconds that may lie between an image and its depth or pose.
        """
        self.root = resolve_root(root, "tum")
        samples = []
        for folder in self._folders(sequences):
            path = folder.resolve()
            camera_name: str = camera or next((name for name in CAMERAS if name in str(path)), "")
            if camera_name not in CAMERAS:
                log.warning("%s: which camera it is from is not in its name; say so by camera=freiburg1.", folder)
            self.facts = [*self.facts, f"{path.name}: camera {camera_name or 'unknown: set `camera`'}"]
            intrinsics = camera_of(camera_name) if undistort else CAMERAS.get(camera_name)
            samples += [
                replace(frame, name=f"{path.name}/{frame.name}", intrinsics=intrinsics)
                for frame in read_tum(folder, max_gap)
                if frame.depth is not None
            ]
        super().__init__(samples, subset, f"tum in {self.root}")

    def _folders(self, sequences: tuple[str, ...]) -> list[Path]:
        if sequences:
            return [self.root / name for name in sequences]
        if (self.root / "rgb.txt").is_file():
            return [self.root]
        folders = sorted(path.parent for path in self.root.glob("*/rgb.txt"))
        if not folders:
            raise DataError(f"{self.root}: no sequence with an rgb.txt in it.")
        return folders


def camera_of(name: str) -> Camera | None:
    """Return one of the three cameras, with its lens."""
    if name not in LENSES:
        return CAMERAS.get(name)
    return model_of_matrix(CAMERAS[name], (480, 640), distortion_of("plumb_bob", LENSES[name], name))
