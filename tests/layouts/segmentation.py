"""Data sets with a label map per photograph, on disk: ADE20K, Cityscapes, PASCAL VOC and Context, SBD, COCO-Stuff.

All take samples whose `labels` are positions in the data set's classes, 255 where none.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64, UInt8

from densevit.data.datasets.segmentation import ade20k, cityscapes, coco_stuff
from densevit.data.datasets.segmentation.pascal_context import context_table
from densevit.data.io.writers import encode, encode_palette
from densevit.data.labels.class_lists import published_entries, published_table
from densevit.data.labels.class_table import ClassTable
from densevit.model_card import Palette
from densevit.structures import IGNORE, Sample
from layouts.common import labelled, lines_of, number, parted, put
from layouts.encoders import mat

INSTANCES = range(24, 34)  # ids of Cityscapes whose things are numbered


def write_ade20k(root: Path, samples: Iterable[Sample], split: ade20k.Split = "train") -> None:
    """`ADEChallengeData2016/{images,annotations}/`: class k as k + 1, 0 where none."""
    home, folder = root / "ADEChallengeData2016", ade20k.FOLDERS[split]
    for i, sample in enumerate(samples):
        name = f"ADE_{split}_{number(sample.name, i):08d}"
        put(home / f"images/{folder}/{name}.jpg", encode(".jpg", sample.image))
        put(
            home / f"annotations/{folder}/{name}.png",
            encode(".png", stored(published_table("ade20k"), labelled(sample), 0)),
        )


def write_cityscapes(
    root: Path,
    samples: Iterable[Sample],
    split: cityscapes.Split = "train",
    encodings: Iterable[cityscapes.Encoding] = ("labelIds", "labelTrainIds", "instanceIds"),
) -> None:
    """`leftImg8bit/` and `gtFine/`, a folder per city; coarse labels for `train_extra`."""
    annotation = "gtCoarse" if split == "train_extra" else "gtFine"
    for i, sample in enumerate(samples):
        city = parted(sample.name)[0]
        name = f"{city}/{city}_{number(sample.name, i):06d}_000019"
        put(root / f"leftImg8bit/{split}/{name}_leftImg8bit.png", encode(".png", sample.image))
        for encoding in encodings:
            converted = encoding == "labelTrainIds"
            table = published_table("cityscapes", converted=converted)
            ids = stored(table, labelled(sample), IGNORE if converted else 0)
            if encoding == "instanceIds":
                ids = np.where(np.isin(ids, INSTANCES), ids.astype(np.uint16) * 1000, ids)
            put(root / f"{annotation}/{split}/{name}_{annotation}_{encoding}.png", encode(".png", ids))


def write_voc(root: Path, samples: Iterable[Sample], split: Literal["train", "val"] = "train") -> None:
    """`VOCdevkit/VOC2012/`: palette PNGs, 255 where none, and the list of the split."""
    home, names = root / "VOCdevkit/VOC2012", []
    for i, sample in enumerate(samples):
        names.append(f"2007_{number(sample.name, i):06d}")
        put(home / f"JPEGImages/{names[-1]}.jpg", encode(".jpg", sample.image))
        ids = stored(published_table("voc"), labelled(sample), IGNORE)
        put(home / f"SegmentationClass/{names[-1]}.png", encode_palette(ids, colour_map()))
    put(home / f"ImageSets/Segmentation/{split}.txt", lines_of(names))


def write_sbd(root: Path, samples: Iterable[Sample], split: Literal["train", "val"] = "train") -> None:
    """SBD beside VOC: its images in `JPEGImages`, its labels in `sbd/cls/*.mat`, 0 where none."""
    names = []
    for i, sample in enumerate(samples):
        names.append(f"2008_{number(sample.name, i):06d}")
        put(root / f"VOCdevkit/VOC2012/JPEGImages/{names[-1]}.jpg", encode(".jpg", sample.image))
        segmentation = stored(published_table("voc"), np.where(labelled(sample) == IGNORE, 0, labelled(sample)), 0)
        put(root / f"sbd/cls/{names[-1]}.mat", mat(GTcls={"Segmentation": segmentation}))
    put(root / f"sbd/{split}.txt", lines_of(names))


def write_pascal_context(
    root: Path,
    samples: Iterable[Sample],
    split: Literal["train", "val"] = "train",
    form: Literal["published", "converted"] = "published",
) -> None:
    """`VOCdevkit/VOC2010/` with labels in `trainval/*.mat`, 459 classes by number, or as PNG of 0 to 59.

    Labels are positions among the 60 classes with the background.
    """
    home, names = root / "VOCdevkit/VOC2010", []
    ids459 = np.array([entry.id for entry in published_entries("pascal_context")], np.uint16)
    for i, sample in enumerate(samples):
        names.append(f"2008_{number(sample.name, i):06d}")
        put(home / f"JPEGImages/{names[-1]}.jpg", encode(".jpg", sample.image))
        ids = stored(context_table(background=True), labelled(sample), 0)
        if form == "published":
            put(root / f"trainval/{names[-1]}.mat", mat(LabelMap=ids459[ids]))
        else:
            put(home / f"SegmentationClassContext/{names[-1]}.png", encode(".png", ids))
    put(home / f"ImageSets/{'Main' if form == 'published' else 'SegmentationContext'}/{split}.txt", lines_of(names))


def write_coco_stuff(
    root: Path,
    samples: Iterable[Sample],
    split: coco_stuff.Split = "train",
    encoding: coco_stuff.Encoding = "published",
) -> None:
    """`images/` and `annotations/`: ids 0 to 181, 255 where none."""
    ending = coco_stuff.CONVERTED if encoding == "converted" else ""
    for i, sample in enumerate(samples):
        name = f"{split}2017/{number(sample.name, i):012d}"
        put(root / f"images/{name}.jpg", encode(".jpg", sample.image))
        ids = stored(published_table("coco_stuff", converted=encoding == "converted"), labelled(sample), IGNORE)
        put(root / f"annotations/{name}{ending}.png", encode(".png", ids))


def stored(table: ClassTable, labels: Int64[np.ndarray, "h w"], none: int) -> UInt8[np.ndarray, "h w"]:
    """Positions as the table's stored ids; `none` where they are 255."""
    ids = np.full(256, none, np.uint8)
    for id_, place in table.places.items():
        if place != IGNORE:
            ids[place] = id_
    return np.take(ids, labels)


def colour_map() -> Palette:
    """The 256 colours of the VOC development kit: each three bits of an index are one bit of red, green and blue."""
    spread = [[sum(((i >> (3 * k + c)) & 1) << (7 - k) for k in range(3)) for c in range(3)] for i in range(256)]
    return tuple((red, green, blue) for red, green, blue in spread)
