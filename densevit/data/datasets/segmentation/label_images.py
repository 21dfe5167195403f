"""Data sets of photographs with a label map each: what their readers share.

A reader finds its `LabelledSample` files and hands them to `LabelledImages` with the table of its classes.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import Dataset
from densevit.data.index.paths import MissingItem, Subset, inside, keep_present, note
from densevit.data.io.readers import read_image, read_labels
from densevit.data.io.samples import same_size
from densevit.data.labels.class_table import ClassTable
from densevit.errors import DataError
from densevit.structures import Sample

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelledSample:
    """The files of one sample."""

    name: str
    image: Path
    labels: Path | None  # None where nobody labelled it

    def files(self) -> list[Path]:
        return [path for path in (self.image, self.labels) if path is not None]


class LabelledImages(Dataset):
    """Photographs whose label maps are all there, read by one table of classes."""

    table: ClassTable

    def __init__(self, samples: Sequence[LabelledSample], table: ClassTable, subset: Subset, what: str) -> None:
        """Checks the files.

        Args:
            what: data set and split, for messages.

        Raises:
            DataError: some are missing and `subset` is full, or all are; with the count and the first five.
        """
        self.samples = keep_present(samples, LabelledSample.files, subset, what)
        self.names = [sample.name for sample in self.samples]
        self.table = table
        self.classes = table.names
        self.palette = table.palette

    def read(self, index: int) -> Sample:
        sample = self.samples[index]
        image, labels = read_image(sample.image), self.label_map(index)
        if labels is not None and sample.labels is not None:
            same_size(sample.image, image, sample.labels, labels)
        return Sample(name=sample.name, image=image, labels=labels)

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        path = self.samples[index].labels
        return None if path is None else self.table.of_ids(path, self.stored(path))

    def stored(self, path: Path) -> Int64[np.ndarray, "h w"]:
        """A label map as its file has it."""
        return read_labels(path)

    def files(self, index: int) -> Mapping[str, Path]:
        sample = self.samples[index]
        return {"image": sample.image} | ({"labels": sample.labels} if sample.labels else {})


def warn_if_incomplete(count: int, published: int, what: str) -> None:
    """Says that a folder holds fewer images than were published: half an archive looks like a whole one."""
    if count >= published:
        return
    reason = f"{count:,} of the {published:,} published images are there"
    if not note([MissingItem("left_out", what, reason)]):
        log.warning("%s: %s.", what, reason)


def listed_names(path: Path) -> list[str]:
    """The names of a list of images, one a line.

    Raises:
        DataError: it is not there, empty, or leads out of the data set.
    """
    try:
        names = inside(path.read_text().split(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the list of images cannot be read ({error}).") from error
    if not names:
        raise DataError(f"{path}: the list is empty.")
    return names
