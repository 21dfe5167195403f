"""`voc`: PASCAL VOC 2012 segmentation, 20 classes and the background; 1,464 images to train, 1,449 to validate.

    [VOCdevkit/]VOC2012/JPEGImages/2007_000032.jpg
    [VOCdevkit/]VOC2012/SegmentationClass/2007_000032.png       palette PNG: 0 to 20; 255 = borders and difficult things
    [VOCdevkit/]VOC2012/ImageSets/Segmentation/{train,val,trainval}.txt
    [VOCdevkit/]VOC2012/SegmentationClassAug/2008_000002.png    of SBD, as gray PNG: 0 to 20; optional, or
    sbd/cls/2008_000002.mat                                     as published: GTcls.Segmentation
    sbd/{train,val}.txt

Everingham et al. 2010; Hariharan et al. 2011 for the Semantic Boundaries Dataset (SBD), which labels 11,355 images of
VOC. `train_aug` is what papers train on: the images of VOC's `train` and of SBD, without VOC's `val`: 10,582. Where
both have labels, VOC's count.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import DATASETS, Root, resolve_root
from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.index.paths import Listing, SampleFiles, Subset, first_folder, read_names
from densevit.data.io import matlab
from densevit.data.io.readers import read_labels
from densevit.data.labels.class_lists import published_table
from densevit.errors import DataError

Split = Literal["train", "val", "trainval", "train_aug"]
COUNTS: dict[str, int] = {"train": 1_464, "val": 1_449, "trainval": 2_913, "train_aug": 10_582}

LISTS = "ImageSets/Segmentation"
FOLDERS = ("", "VOC2012", "VOCdevkit/VOC2012")
SBD = ("sbd", "SBD", "benchmark_RELEASE/dataset", "VOCaug/dataset")  # as torchvision, papers and its archive have it


@DATASETS.register("voc")
class Voc(LabelledImages):
    """PASCAL VOC 2012, 21 classes with the background."""

    def __init__(
        self,
        *,
        root: Root = None,
        split: Split = "train",
        sbd_root: Path | None = None,
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            split: `train_aug` adds the images of SBD.
            sbd_root: SBD's folder of `cls`, if it is not below the root.
        """
        self.root = resolve_root(root, "voc")
        folder = first_folder(self.root, FOLDERS, LISTS)
        if split == "train_aug":
            samples = augmented(folder, sbd_root.expanduser() if sbd_root else first_folder(self.root, SBD, "cls"))
        else:
            samples = [_voc_sample(folder, name) for name in read_names(folder / LISTS / f"{split}.txt")]
        super().__init__(samples, published_table("voc"), subset, f"voc '{split}' in {folder}", COUNTS[split])

    def read_ids(self, path: Path) -> Int64[np.ndarray, "h w"]:
        return read_sbd(path) if path.suffix == ".mat" else read_labels(path)


def augmented(folder: Path, sbd: Path) -> list[SampleFiles]:
    """Return the images of VOC's `train` and of SBD that VOC's `val` has not. Raises DataError: neither SBD's lists nor
    `trainaug.txt` is there."""
    train = read_names(folder / LISTS / "train.txt")
    in_voc = set(train)
    converted = Listing()
    return [
        _voc_sample(folder, name)
        if name in in_voc
        else SampleFiles(name, _image(folder, name), labels=_added(folder, sbd, name, converted))
        for name in augmented_names(folder, sbd, train)
    ]


def augmented_names(folder: Path, sbd: Path, train: Sequence[str]) -> list[str]:
    """Return the names from `trainaug.txt`, as converters write it, or from the lists of both sets."""
    listed = folder / LISTS / "trainaug.txt"
    if listed.is_file():
        return read_names(listed)
    if not (sbd / "train.txt").is_file():
        raise DataError(
            f"{listed}: not there, nor SBD's train.txt and val.txt in {sbd}. Set `sbd_root` to the folder that holds "
            "`cls`; docs/data.md says where to get it."
        )
    both = {*train, *read_names(sbd / "train.txt"), *read_names(sbd / "val.txt")}
    return sorted(both - set(read_names(folder / LISTS / "val.txt")))


def read_sbd(path: Path) -> Int64[np.ndarray, "h w"]:
    """Return the class ids of a file of `cls`. Raises DataError if it is no such file."""
    try:
        ids = matlab.load(path, "GTcls")["Segmentation"][0, 0]
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: GTcls has no Segmentation ({error}).") from error
    return matlab.class_ids(path, ids)


def _image(folder: Path, name: str) -> Path:
    return folder / f"JPEGImages/{name}.jpg"


def _voc_sample(folder: Path, name: str) -> SampleFiles:
    return SampleFiles(name, _image(folder, name), labels=folder / f"SegmentationClass/{name}.png")


def _added(folder: Path, sbd: Path, name: str, there: Listing) -> Path:
    converted = folder / f"SegmentationClassAug/{name}.png"
    return converted if converted in there else sbd / f"cls/{name}.mat"
