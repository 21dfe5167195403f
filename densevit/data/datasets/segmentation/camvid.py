"""`camvid`: frames of four drives through Cambridge, 11 classes; 367 images to train, 101 to validate, 233 to test.

    {train,val,test}/0001TP_006690.png           360 x 480, as the SegNet tutorial has them
    {train,val,test}annot/0001TP_006690.png      8 bits: 0 to 10; 11 = unlabelled
    {train,val,test}/rgb/*, {train,val,test}/labels/*.png, or {train,val,test}/images/* and .../masks/*: also found

Brostow, Shotton, Fauqueur and Cipolla 2008; the split and the 11 classes are those of Sturgess et al. 2009 and of
SegNet (Badrinarayanan, Kendall and Cipolla 2017). Neighbouring frames of a drive are alike.
"""

from typing import Literal

from densevit.data.datasets.base import DATASETS, Root, resolve_root
from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.index.matching import IMAGE_SUFFIXES
from densevit.data.index.paths import SampleFiles, Subset, glob_visible
from densevit.data.labels.class_lists import published_table
from densevit.errors import DataError

Split = Literal["train", "val", "test"]
COUNTS: dict[str, int] = {"train": 367, "val": 101, "test": 233}
LAYOUTS = (("{}", "{}annot"), ("{}/rgb", "{}/labels"), ("{}/images", "{}/masks"), ("{}/images", "{}/labels"))
"""Folders of images and of label maps, for a split."""


@DATASETS.register("camvid")
class CamVid(LabelledImages):
    """CamVid, 11 classes."""

    def __init__(self, *, root: Root = None, split: Split = "train", subset: Subset = "full") -> None:
        """List the images."""
        self.root = resolve_root(root, "camvid")
        layouts = [(self.root / image.format(split), self.root / label.format(split)) for image, label in LAYOUTS]
        folders = [pair for pair in layouts if pair[0].is_dir() and pair[1].is_dir()]
        if not folders:
            raise DataError(
                f"{self.root}: neither {split}/ beside {split}annot/ nor {split}/rgb/ beside {split}/labels/ is there."
            )
        images, labels = folders[0]
        paths = [path for path in glob_visible(images, "*") if path.suffix.lower() in IMAGE_SUFFIXES]
        samples = [SampleFiles(path.stem, path, labels=labels / f"{path.stem}.png") for path in paths]
        super().__init__(samples, published_table("camvid"), subset, f"camvid '{split}' in {self.root}", COUNTS[split])

    def scene(self, index: int) -> str:
        return self.names[index].partition("_")[0]  # the drive
