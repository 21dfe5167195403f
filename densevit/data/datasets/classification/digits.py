"""`digits`: scikit-learn's bundled handwritten digits, 1,797 real images of 8 x 8 pixels in ten classes.

They are the test part of the UCI set of Alpaydin and Kaynak (1998). Of each six neighbours in the file four are
`train`, one `val` and one `test`, so every writer is in every part: a score does not tell how well the digits of other
writers would be read.
"""

from typing import Literal

import numpy as np

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.errors import DataError
from densevit.structures import Sample

# Which of each six neighbours a part takes.
PARTS = {"train": (0, 1, 2, 3), "val": (4,), "test": (5,)}
WHITE = 16  # grey levels are 0 to 16


@DATASETS.register("digits")
class Digits(Dataset):
    """White digits on black; `label` is the digit. Needs scikit-learn: `pip install 'densevit[digits]'`."""

    classes = tuple("0123456789")

    def __init__(self, *, split: Literal["train", "val", "test"] = "train") -> None:
        """Raise DataError if scikit-learn is not installed."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise DataError("digits: needs scikit-learn (pip install 'densevit[digits]').") from error
        data = load_digits()
        indices = [i for i in range(len(data.images)) if i % 6 in PARTS[split]]
        self.pixels = np.rint(data.images[indices] * (255 / WHITE)).astype(np.uint8)
        self.labels = data.target[indices]
        self.names = [f"{i:04d}" for i in indices]

    def read(self, index: int) -> Sample:
        return Sample(
            name=self.names[index],
            image=np.repeat(self.pixels[index, ..., None], 3, axis=2),
            label=int(self.labels[index]),
        )
