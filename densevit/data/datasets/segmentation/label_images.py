"""The base class of segmentation data sets: images with a label map each, and one table of classes."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import FileDataset
from densevit.data.index.paths import MissingItem, SampleFiles, Subset, record_missing
from densevit.data.io.readers import read_labels
from densevit.data.labels.class_table import ClassTable

log = logging.getLogger(__name__)


class LabelledImages(FileDataset):
    """Images with label maps of class ids. A subclass finds the files and names the table of its classes."""

    table: ClassTable

    def __init__(
        self, samples: Sequence[SampleFiles], table: ClassTable, subset: Subset, what: str, published: int = 0
    ) -> None:
        """Check the files. Raises DataError if some are missing and `subset` is full, or all are; with the count and
        the first five.

        Args:
            what: data set and split, for messages.
            published: images of the split; a warning says if there are fewer: half an archive looks like a whole one.
        """
        super().__init__(samples, subset, what)
        self.table = table
        self.classes = table.names
        self.palette = table.palette
        if len(samples) < published:
            reason = f"{len(samples):,} of the {published:,} published images are there"
            if not record_missing([MissingItem("left_out", what, reason)]):
                log.warning("%s: %s.", what, reason)

    def decode_labels(self, files: SampleFiles) -> Int64[np.ndarray, "h w"] | None:
        return None if files.labels is None else self.table.map_ids(files.labels, self.read_ids(files.labels))

    def read_ids(self, path: Path) -> Int64[np.ndarray, "h w"]:
        """Return the ids in a label file, as stored."""
        return read_labels(path)
