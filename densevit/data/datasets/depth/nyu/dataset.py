"""`nyu`: NYU Depth v2, from the official labelled .mat or from the published folders ("sync").

On disk, under `root` (all 480 x 640; depth is a 16-bit PNG in millimetres, 0 where there is none):

    nyu_depth_v2_labeled.mat                                          (densevit.data.datasets.depth.nyu.mat_file)
    [sync/]kitchen_0028b/rgb_00045.jpg, sync_depth_00045.png          24,231 pairs to train on
    [official_splits/]test/bathroom/rgb_00045.jpg, sync_depth_...     654 pairs to test on
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64

from densevit.data.datasets.base import DATASETS, FileDataset, Root, folder_of, resolve_root
from densevit.data.datasets.depth.nyu.label_maps import LabelMap
from densevit.data.datasets.depth.nyu.mat_file import INTRINSICS, Border, LabelledMat, apply_border, apply_border_to_map
from densevit.data.index.paths import SampleFiles, Subset
from densevit.data.index.published_splits import read_list
from densevit.errors import DataError
from densevit.ops.crops import NYU_SIZE
from densevit.structures import Sample

Split = Literal["train", "test"]

FILE = "nyu_depth_v2_labeled.mat"

# A filmed scene, kitchen_0028b say; the test images are sorted by the kind of room only.
SCENE = re.compile(r"_\d{4}[a-z]?$")

# Where people keep the folders of a split, under the root.
FOLDERS: dict[Split, tuple[str, ...]] = {
    "train": ("sync", "nyu_depth_v2/sync", "train", "official_splits/train", ""),
    "test": ("official_splits/test", "nyu_depth_v2/official_splits/test", "test", ""),
}


@DATASETS.register("nyu")
class Nyu(FileDataset):
    """NYU Depth v2."""

    depth_scale = 1000.0
    depth_range = (1e-3, 10.0)
    sizes = frozenset([NYU_SIZE, (427, 565)])
    typical_depth = (1.3, 5.0)
    typical_density: tuple[float, float] | None = (0.4, 0.97)  # of raw depth

    def __init__(
        self,
        *,
        root: Root = None,
        split: Split = "train",
        source: Literal["auto", "mat", "sync"] = "auto",
        depth: Literal["raw", "filled"] = "raw",
        border: Border | Literal["auto"] = "auto",
        classes: tuple[str, ...] = (),
        label_map: LabelMap = None,
        list_file: Path | None = None,
        subset: Subset = "full",
    ) -> None:
        """Find the files and check that all are there.

        Args:
            root: default `nyu` (densevit.data.datasets.base.resolve_root); the .mat itself will do too.
            split: 795 and 654 frames of the .mat; of the folders 24,231 and 654.
            source: mat is the labelled file, sync the folders; auto takes the folders where they are and no labels are
                wanted, else the .mat.
            depth: which depth of the .mat. raw is what every published score is measured against (in whole
                millimetres); filled has the sensor's holes painted in. The folders hold raw depth only.
            border: black sets the image to 0 outside [7:474, 7:632], as in the published test images; crop cuts to
                [45:472, 43:608], as bts does to be rid of the white frame, and mask takes the depth outside it away.
                auto is what was published: black for the .mat, the folders as they are (the transform `nyu_crop` cuts).
            classes: names of classes of the .mat (`wall`, `floor`, ...): `labels` are positions herein, all others
                ignored.
            label_map: instead of `classes`, for the .mat: mapping files beside it, each from the classes of the one
                before (`classMapping40.mat`, and `class13Mapping.mat` after it); or `raw`, all 894.
            list_file: an own list of `IMAGE DEPTH [FOCAL]` lines under `root`, instead of the published one.
        """
        self.root = resolve_root(root, "nyu")
        if source == "auto":
            source = "mat" if classes or label_map else find_source(self.root, split, list_file)
        if border == "auto":
            border = "black" if source == "mat" else "keep"
        self.border = border
        if depth == "filled":
            self.typical_density = None
        self.mat: LabelledMat | None = None
        if source == "mat":
            self._open_mat(split, depth, classes, label_map, subset)
        elif classes or label_map or depth == "filled":
            raise DataError(f"{self.root}: labels and filled depth are in the .mat only; set `source: mat`.")
        else:
            pairs = read_list(self.root, list_file, f"nyu_sync_{split}.txt.gz")
            folder = folder_of_split(self.root, split, pairs)
            samples = [
                SampleFiles(image.rpartition(".")[0], folder / image, folder / depth, intrinsics=INTRINSICS)
                for image, depth in pairs
                if depth
            ]
            super().__init__(samples, subset, f"nyu '{split}' in {folder}")

    def read(self, index: int) -> Sample:
        return apply_border(super().read(index) if self.mat is None else self.mat.read(index), self.border)

    def depth_map(self, index: int) -> Float32[np.ndarray, "h w"] | None:
        depth = super().depth_map(index) if self.mat is None else self.mat.depth_map(index)
        return None if depth is None else apply_border_to_map(self.names[index], depth, self.border, masked=True)

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        labels = None if self.mat is None else self.mat.label_map(index)
        return None if labels is None else apply_border_to_map(self.names[index], labels, self.border, masked=False)

    def files(self, index: int) -> Mapping[str, Path]:
        return super().files(index) if self.mat is None else {}

    def scene(self, index: int) -> str:
        folder = folder_of(self.names[index])
        return folder if SCENE.search(folder) else ""

    def _open_mat(
        self,
        split: Split,
        depth: Literal["raw", "filled"],
        classes: tuple[str, ...],
        label_map: LabelMap,
        subset: Subset,
    ) -> None:
        if classes and label_map:
            raise DataError(f"{self.root}: give one of `classes` and `label_map`.")
        self.mat = LabelledMat(mat_path(self.root), split, depth, classes=classes, label_map=label_map, subset=subset)
        self.names = self.mat.names
        if self.mat.labels is not None:
            self.classes = self.mat.labels.table.names


def find_source(root: Path, split: Split, list_file: Path | None) -> Literal["mat", "sync"]:
    """Return the folders where any that the list names is there, else the .mat. Raises DataError if neither is."""
    if not root.is_dir():
        return "mat"
    pairs = read_list(root, list_file, f"nyu_sync_{split}.txt.gz")
    folder = folder_of_split(root, split, pairs)
    if list_file or any((folder / scene).is_dir() for scene in _scenes(pairs)):
        return "sync"
    if mat_path(root).is_file():
        return "mat"
    raise DataError(
        f"{root}: neither {FILE} nor the '{split}' folders of NYU Depth v2 (for example {folder / pairs[0][0]}). "
        "docs/data.md says where to get them."
    )


def mat_path(root: Path) -> Path:
    return root / FILE if root.is_dir() else root


def folder_of_split(root: Path, split: Split, pairs: list[tuple[str, str | None]]) -> Path:
    """Return the one of `FOLDERS` that holds most of the listed scenes; the first where none holds any."""
    scenes = _scenes(pairs)
    counts = {name: sum((root / name / scene).is_dir() for scene in scenes) for name in FOLDERS[split]}
    return root / max(counts, key=lambda name: counts[name])


def _scenes(pairs: list[tuple[str, str | None]]) -> set[str]:
    return {folder_of(image) for image, _ in pairs}
