"""MATLAB label maps as PNG, smaller and quicker to read, in the places and lists that mmsegmentation uses, too.

    VOC:      sbd/cls/*.mat   -> VOC2012/SegmentationClassAug/*.png, ImageSets/Segmentation/trainaug.txt
    Context:  trainval/*.mat  -> VOC2010/SegmentationClassContext/*.png, ImageSets/SegmentationContext/{train,val}.txt

Files that are there already are left, so an interrupted run goes on.
"""

from collections.abc import Iterable
from pathlib import Path

from densevit.data.datasets.segmentation.label_images import LabelledImages
from densevit.data.datasets.segmentation.pascal_context import LISTS as CONTEXT_LISTS
from densevit.data.datasets.segmentation.pascal_context import PascalContext
from densevit.data.datasets.segmentation.pascal_context import Split as ContextSplit
from densevit.data.datasets.segmentation.voc import LISTS, Voc
from densevit.data.io.writers import encode_labels
from densevit.errors import DataError
from densevit.utils.atomic_io import write_bytes, write_text
from densevit.utils.output import tqdm


def convert_voc(root: Path, sbd_root: Path | None = None) -> int:
    """Convert SBD's files of the images of `train_aug`. Raises DataError: VOC or SBD is not there, or a file is bad.
    Returns how many files were written."""
    data = Voc(root=root.absolute(), split="train_aug", sbd_root=sbd_root)
    folder = data.samples[0].image.parents[1]
    written = _convert(data, folder / "SegmentationClassAug")
    write_text(folder / LISTS / "trainaug.txt", _lines(data.names))
    return written


def convert_context(root: Path) -> int:
    """Return all published files. Raises DataError: VOC 2010 or the label maps are not there, or a file is bad. Returns
    how many files were written."""
    written = 0
    splits: tuple[ContextSplit, ...] = ("train", "val")
    for split in splits:
        data = PascalContext(root=root.absolute(), split=split, background=True)
        folder = data.samples[0].image.parents[1]
        written += _convert(data, folder / "SegmentationClassContext")
        listed = folder / CONTEXT_LISTS[0] / f"{split}.txt"
        listed.parent.mkdir(parents=True, exist_ok=True)
        write_text(listed, _lines(data.names))
    return written


CONVERTERS = {"voc": convert_voc, "pascal_context": convert_context}


def _convert(data: LabelledImages, folder: Path) -> int:
    """Return a PNG of the class ids for each MATLAB file."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [(i, path) for i, sample in enumerate(data.samples) if (path := sample.labels) and path.suffix == ".mat"]
    for index, path in tqdm(found, desc=folder.name, unit="maps", disable=None):
        ids = data.label_map(index)
        if ids is None:
            raise DataError(f"{path}: no labels in it.")
        content = encode_labels(ids)
        write_bytes(folder / f"{path.stem}.png", content)
    return len(found)


def _lines(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in names)
