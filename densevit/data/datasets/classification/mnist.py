"""`mnist`: 70,000 handwritten digits of 28 x 28 pixels in ten classes (LeCun et al. 1998), from the official files.

`train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same of `t10k`, as they are or gzipped, in the data set's
folder or where torchvision puts them (`MNIST/raw` below it). torchvision reads, and on request fetches, them.
"""

import gzip
import shutil
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64, UInt8

from densevit.data.datasets.base import DATASETS, Dataset, Root, resolve_root
from densevit.errors import DataError
from densevit.structures import Sample

Split = Literal["train", "val", "train+val", "test"]
FOLDERS = ("MNIST/raw", "raw", ".")
HELD_OUT = 12  # the last of this many equal shares of the training files are `val`: 5,000 of 60,000


@DATASETS.register("mnist")
class Mnist(Dataset):
    """White digits on black, the grey value in all three channels; `label` is the digit."""

    classes = tuple("0123456789")

    def __init__(self, *, root: Root = None, split: Split = "train", download: bool = False) -> None:
        """Raise DataError if the files are missing, damaged or of something else.

        Args:
            split: `train+val` is all 60,000 training images; `val` is the last 5,000 of them. MNIST has no such split,
                but a checkpoint must not be chosen by its test score.
            download: let torchvision fetch the files into `root/MNIST/raw` if they are not there.
        """
        if download:
            root = fetch(root or Path("mnist"))
        folder = find(resolve_root(root, "mnist"))
        prefix = "t10k" if split == "test" else "train"
        images = read_idx(folder, f"{prefix}-images-idx3-ubyte", (28, 28))
        labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", ()).astype(np.int64)
        if len(images) != len(labels) or not len(images):
            raise DataError(f"{folder}: {len(images):,} images and {len(labels):,} labels in '{prefix}'.")
        if labels.max() > 9:
            raise DataError(f"{folder}: label {labels.max()} in '{prefix}'; MNIST has digits 0 to 9.")
        rows = shares(len(images))[split]
        self.images: UInt8[np.ndarray, "n 28 28"] = images[rows]
        self.labels: Int64[np.ndarray, " n"] = labels[rows]
        self.names = [f"{prefix}_{i:05d}" for i in range(*rows.indices(len(images)))]

    def read(self, index: int) -> Sample:
        return Sample(
            name=self.names[index],
            image=np.repeat(self.images[index, ..., None], 3, axis=2),
            label=int(self.labels[index]),
        )


def shares(count: int) -> dict[str, slice]:
    cut = count - count // HELD_OUT
    return {"train": slice(0, cut), "val": slice(cut, count), "train+val": slice(0, count), "test": slice(0, count)}


def find(root: Path) -> Path:
    """Return the folder of the idx files."""
    for folder in FOLDERS:
        if any((root / folder).glob("*-idx?-ubyte*")):
            return root / folder
    raise DataError(
        f"{root}: no MNIST files. Put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte (or their .gz) there or in MNIST/raw below it, or set `download: true`."
    )


def read_idx(folder: Path, name: str, shape: tuple[int, ...]) -> UInt8[np.ndarray, "n ..."]:
    """Return an idx file of bytes, gzipped or not; `shape` is that of one item."""
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    path = folder / name
    zipped = path.with_name(f"{name}.gz")
    if not path.is_file() and not zipped.is_file():
        raise DataError(f"{path}: not found, nor {zipped.name}.")
    try:
        with TemporaryDirectory() as temporary:
            readable = path if path.is_file() else unzip(zipped, Path(temporary) / name)
            values: np.ndarray[Any, Any] = read_sn3_pascalvincent_tensor(str(readable)).numpy()
    except (OSError, EOFError, zlib.error, AssertionError, KeyError, ValueError, RuntimeError, IndexError) as error:
        raise DataError(f"{path}: not a whole idx file ({str(error) or 'its header and size disagree'}).") from error
    if values.dtype != np.uint8 or values.shape[1:] != shape:
        item = "x".join(map(str, shape)) or "one"
        raise DataError(f"{path}: holds {values.dtype} of shape {values.shape}, not {item} uint8 for each image.")
    return values


def unzip(source: Path, target: Path) -> Path:
    with gzip.open(source) as packed, open(target, "wb") as plain:
        shutil.copyfileobj(packed, plain)
    return target


def fetch(root: Path) -> Path:
    """Download what is missing; return the folder it stands in."""
    from torchvision.datasets import MNIST

    try:
        folder = resolve_root(root, "mnist")
    except DataError:
        folder = root.expanduser()
    try:
        MNIST(folder, download=True)
    except (OSError, RuntimeError) as error:
        raise DataError(f"{folder}: MNIST cannot be fetched ({str(error).strip()}).") from error
    return folder.absolute()
