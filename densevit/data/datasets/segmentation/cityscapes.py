"""`cityscapes`: streets of 50 cities, 1024 x 2048, 19 classes; 2,975 images to train, 500 to validate, 1,525 to test.

    leftImg8bit/{train,val,test}/aachen/aachen_000000_000019_leftImg8bit.png
    gtFine/{train,val,test}/aachen/aachen_000000_000019_gtFine_labelIds.png         8 bits: 0 to 33
    gtFine/{train,val,test}/aachen/aachen_000000_000019_gtFine_labelTrainIds.png    8 bits: 0 to 18; 255 = ignored
    gtFine/{train,val,test}/aachen/aachen_000000_000019_gtFine_instanceIds.png      16 bits: id, or id * 1000 + number
    gtCoarse/{train,train_extra,val}/aachen/..._gtCoarse_labelIds.png               the same, coarsely

Cordts et al. 2016. Of the 34 stored ids 19 are classes; the others are ignored, as in the benchmark. The test set's
labels are withheld: its files hold nothing but void.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import DATASETS, Classes, Root, resolve_root
from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.index.paths import SampleFiles, Subset, find_files
from densevit.data.io.readers import read_labels
from densevit.data.labels.class_lists import published_table
from densevit.errors import DataError
from densevit.ops.segments import segments_of_labels

Split = Literal["train", "val", "test", "train_extra"]
Encoding = Literal["labelIds", "labelTrainIds", "instanceIds"]

COUNTS: dict[str, int] = {"train": 2_975, "val": 500, "test": 1_525, "train_extra": 19_998}
IMAGE = "_leftImg8bit"


@DATASETS.register("cityscapes")
class Cityscapes(LabelledImages):
    """Cityscapes, 19 classes."""

    sizes = frozenset([(1024, 2048)])
    things = range(11, 19)  # person to bicycle

    def __init__(
        self,
        *,
        root: Root = None,
        split: Split = "train",
        annotation: Literal["gtFine", "gtCoarse"] = "gtFine",
        encoding: Encoding | Literal["auto"] = "auto",
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            split: `train_extra` has coarse labels only.
            encoding: which of the label files; auto takes labelIds, or labelTrainIds where there are no labelIds.
                instanceIds have segments, too: a group of things, which has no number, is a crowd.
        """
        self.root = resolve_root(root, "cityscapes")
        if split == "train_extra" and annotation == "gtFine":
            raise DataError(f"{self.root}: 'train_extra' has coarse labels only; set `annotation: gtCoarse`.")
        images = find_files(
            self.root,
            [f"leftImg8bit/{split}/*/*{IMAGE}.png"],
            "as leftImg8bit_trainvaltest.zip (for train_extra leftImg8bit_trainextra.zip) has them.",
        )
        maps = self.root / annotation / split
        self.encoding = find_encoding(images[0], maps, annotation) if encoding == "auto" else encoding
        samples = [_labelled(path, maps, f"{annotation}_{self.encoding}") for path in images]
        if split == "test" and not maps.is_dir():
            samples = [replace(sample, labels=None) for sample in samples]
        table = published_table("cityscapes", converted=self.encoding == "labelTrainIds")
        super().__init__(samples, table, subset, f"cityscapes '{split}' in {self.root}", COUNTS[split])

    def read_ids(self, path: Path) -> Int64[np.ndarray, "h w"]:
        ids = read_labels(path)
        return np.where(ids < 1000, ids, ids // 1000) if self.encoding == "instanceIds" else ids

    def decode_classes(self, files: SampleFiles, size: tuple[int, ...]) -> Classes:
        if files.labels is None or self.encoding != "instanceIds":
            return self.decode_labels(files), None
        ids = read_labels(files.labels)
        labels = self.table.map_ids(files.labels, np.where(ids < 1000, ids, ids // 1000))
        return labels, segments_of_labels(labels, np.where(ids < 1000, 0, ids), self.things)


def find_encoding(image: Path, maps: Path, annotation: str) -> Encoding:
    """Return labelIds, which are what is published, unless the first image has only labelTrainIds."""
    train = _labelled(image, maps, f"{annotation}_labelTrainIds").labels
    ids = _labelled(image, maps, f"{annotation}_labelIds").labels
    assert train is not None and ids is not None
    return "labelTrainIds" if train.is_file() and not ids.is_file() else "labelIds"


def _labelled(image: Path, maps: Path, ending: str) -> SampleFiles:
    city, stem = image.parent.name, image.stem.removesuffix(IMAGE)
    return SampleFiles(f"{city}/{stem}", image, labels=maps / city / f"{stem}_{ending}.png")
