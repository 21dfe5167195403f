"""`ade20k`: ADE20K as MIT's scene parsing benchmark has it, 150 classes; 20,210 images to train and 2,000 to validate.

    [ADEChallengeData2016/]images/{training,validation}/ADE_train_00000001.jpg         any size
    [ADEChallengeData2016/]annotations/{training,validation}/ADE_train_00000001.png    8 bits: 1 to 150; 0 = other

Zhou et al. 2017. Class k is stored as k + 1; stored 0, what none of the 150 names, is ignored.
"""

from typing import Literal

from densevit.data.datasets.base import DATASETS, Root, resolve_root
from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.index.paths import SampleFiles, Subset, find_files, first_folder
from densevit.data.labels.class_lists import published_table

Split = Literal["train", "val"]
FOLDERS: dict[Split, str] = {"train": "training", "val": "validation"}
COUNTS: dict[str, int] = {"train": 20_210, "val": 2_000}


@DATASETS.register("ade20k")
class Ade20k(LabelledImages):
    """ADE20K, 150 classes."""

    def __init__(self, *, root: Root = None, split: Split = "train", subset: Subset = "full") -> None:
        """List the images."""
        self.root = resolve_root(root, "ade20k")
        base = first_folder(self.root, ("", "ADEChallengeData2016"), "images")
        folder = FOLDERS[split]
        images = find_files(base, [f"images/{folder}/*.jpg"], "as ADEChallengeData2016.zip has them.")
        samples = [
            SampleFiles(path.stem, path, labels=base / f"annotations/{folder}/{path.stem}.png") for path in images
        ]
        super().__init__(samples, published_table("ade20k"), subset, f"ade20k '{split}' in {base}", COUNTS[split])
