"""`pascal_context`: PASCAL-Context, 59 classes with or without a background; 4,998 images to train, 5,105 to validate.

    [VOCdevkit/]VOC2010/JPEGImages/2008_000002.jpg
    [VOCdevkit/]VOC2010/SegmentationClassContext/2008_000002.png           8 bits: 0 to 59, as mmsegmentation converts
    [VOCdevkit/]VOC2010/ImageSets/{SegmentationContext,Main}/{train,val}.txt
    trainval/2008_000002.mat                                               as published: LabelMap, ids of 459 classes

Mottaghi et al. 2014. The 59 classes are those that papers score, in the order of their names, 0 what is none of them.
The published files have 459 classes by number; the 400 others are the background.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import DATASETS, Root, resolve_root
from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.index.paths import Listing, SampleFiles, Subset, first_folder, read_names
from densevit.data.io import matlab
from densevit.data.io.readers import read_labels
from densevit.data.labels.class_lists import published_entries
from densevit.data.labels.class_table import ClassTable, Entry
from densevit.errors import DataError

Split = Literal["train", "val"]
COUNTS: dict[str, int] = {"train": 4_998, "val": 5_105}

FOLDERS = ("", "VOC2010", "VOCdevkit/VOC2010")
LISTS = ("ImageSets/SegmentationContext", "ImageSets/Main")
PUBLISHED = ("trainval", "VOCdevkit/VOC2010/trainval", "VOC2010/trainval")
CLASSES = 459  # of the published files


@DATASETS.register("pascal_context")
class PascalContext(LabelledImages):
    """PASCAL-Context, 59 classes, or 60 with the background."""

    def __init__(
        self,
        *,
        root: Root = None,
        split: Split = "train",
        background: bool = False,
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            background: true makes what is none of the 59 classes a class of its own, the first; else it is ignored.
        """
        self.root = resolve_root(root, "pascal_context")
        folder = first_folder(self.root, FOLDERS, "JPEGImages")
        published = next((self.root / p for p in PUBLISHED if (self.root / p).is_dir()), self.root / PUBLISHED[0])
        names, there = read_names(find_list(folder, split)), Listing()
        samples = [_labelled(folder, published, name, there) for name in names]
        super().__init__(
            samples,
            context_table(background=background),
            subset,
            f"pascal_context '{split}' in {folder}",
            COUNTS[split],
        )

    def read_ids(self, path: Path) -> Int64[np.ndarray, "h w"]:
        return read_context(path) if path.suffix == ".mat" else read_labels(path)


def context_table(*, background: bool) -> ClassTable:
    """Return the table of the converted PNGs, whose ids are positions among the 60."""
    entries = [
        Entry(position, entry.name, entry.colour, ignored=position == 0 and not background)
        for position, entry in enumerate(published_entries("pascal_context"))
    ]
    return ClassTable(entries, "densevit's table of pascal_context")


def read_context(path: Path) -> Int64[np.ndarray, "h w"]:
    """Return a published LabelMap, in the ids of the converted PNGs: 0 to 59. Raises DataError if it is no such file,
    or has ids beyond the 459."""
    ids = matlab.class_ids(path, matlab.load(path, "LabelMap"))
    if ids.min() < 0 or ids.max() > CLASSES:
        raise DataError(f"{path}: ids {ids.min()} to {ids.max()}; PASCAL-Context has 0 to {CLASSES}.")
    positions: Int64[np.ndarray, " ids"] = np.zeros(CLASSES + 1, np.int64)
    positions[[entry.id for entry in published_entries("pascal_context")]] = range(60)
    return np.take(positions, ids)


def find_list(folder: Path, split: str) -> Path:
    """Return Context's own list, as converters write it, or VOC 2010's: all its images are labelled. Raises DataError
    if neither is there."""
    paths = [folder / f"{name}/{split}.txt" for name in LISTS]
    listed = next((path for path in paths if path.is_file()), None)
    if listed is None:
        raise DataError(f"{folder}: no {' or '.join(f'{name}/{split}.txt' for name in LISTS)}, as VOC 2010 has them.")
    return listed


def _labelled(folder: Path, published: Path, name: str, there: Listing) -> SampleFiles:
    converted = folder / f"SegmentationClassContext/{name}.png"
    labels = converted if converted in there or not published.is_dir() else published / f"{name}.mat"
    return SampleFiles(name, folder / f"JPEGImages/{name}.jpg", labels=labels)
