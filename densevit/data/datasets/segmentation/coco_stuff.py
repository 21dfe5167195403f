"""`coco_stuff`: COCO-Stuff of 164,000 images, 171 classes: 80 things and 91 stuffs; 118,287 images to train, 5,000 to
validate.

    images/{train2017,val2017}/000000000139.jpg                        any size, most 480 x 640
    annotations/{train2017,val2017}/000000000139.png                   8 bits: 0 to 181; 255 = unlabelled
    annotations/{train2017,val2017}/000000000139_labelTrainIds.png     or so: 0 to 170; as mmsegmentation converts

Caesar, Uijlings and Ferrari 2018. Of the 182 stored ids 11 occur nowhere (things that COCO names and never marked), so
that 171 classes remain, in the same order. The annotations are those of `stuffthingmaps_trainval2017.zip`.
"""

from typing import Literal

from densevit.data.datasets.base import DATASETS, Root, resolve_root
from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.index.paths import SampleFiles, Subset, find_files, first_folder
from densevit.data.labels.class_lists import published_table

Split = Literal["train", "val"]
Encoding = Literal["published", "converted"]
COUNTS: dict[str, int] = {"train": 118_287, "val": 5_000}

# Where the zips are unpacked: as the authors' page has it, or beside each other.
IMAGES = ("images/", "")
MAPS = ("annotations", "stuffthingmaps", "")
CONVERTED = "_labelTrainIds"


@DATASETS.register("coco_stuff")
class CocoStuff(LabelledImages):
    """COCO-Stuff, 171 classes."""

    def __init__(
        self,
        *,
        root: Root = None,
        split: Split = "train",
        encoding: Encoding = "published",
        subset: Subset = "full",
    ) -> None:
        """List the images.

        Args:
            encoding: published reads `*.png` with 0 to 181, converted `*_labelTrainIds.png` with 0 to 170.
        """
        self.root = resolve_root(root, "coco_stuff")
        folder, ending = f"{split}2017", "" if encoding == "published" else CONVERTED
        images = find_files(self.root, [f"{base}{folder}/*.jpg" for base in IMAGES], f"as {folder}.zip has them.")
        maps = first_folder(self.root, MAPS, folder) / folder
        samples = [SampleFiles(path.stem, path, labels=maps / f"{path.stem}{ending}.png") for path in images]
        table = published_table("coco_stuff", converted=encoding == "converted")
        super().__init__(samples, table, subset, f"coco_stuff '{split}' in {self.root}", COUNTS[split])
