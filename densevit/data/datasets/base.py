"""The interface of every data set, and the names a config may use for them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from math import inf
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Int64
from pydantic import AfterValidator

from densevit.data.labels.class_table import ClassTable
from densevit.errors import DataError
from densevit.model_card import Palette
from densevit.registry import ComponentConfig, Registry
from densevit.structures import Sample


def rising(ends: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= ends[0] < ends[1] < inf:
        raise ValueError("input should be two numbers of metres, 0 <= near < far")
    return ends


DepthRange = Annotated[tuple[float, float], AfterValidator(rising)]


class Dataset(ABC):
    """Samples by index. Opening checks that the files are there; reading one decodes it.

    A data set holds paths, not handles: it is pickled to worker processes, and an HDF5 file is opened
    lazily in each of them.
    """

    names: Sequence[str]
    """One unique name per sample, without suffix; may contain `/` (exports keep the folders)."""

    depth_range: tuple[float, float] = (1e-3, 80.0)
    """Metres that the ground truth can mean; used by first-aid checks."""

    classes: Sequence[str] = ()
    """Names of the ids in `Sample.label` or `Sample.labels`, in order; empty where they have none."""

    palette: Palette = ()
    """Colours of the classes, in order; empty where none are published."""

    sizes: Set[tuple[int, int]] = frozenset()
    """(h, w) that images have as published; empty where any size may be. Others were resized or cut by somebody."""

    typical_depth: tuple[float, float] | None = None
    """Metres between which the median depth of a set of such images lies; None where that is not known."""

    typical_density: tuple[float, float] | None = None
    """Shares of pixels with depth between which that of a set of such images lies; None where that is not known."""

    maps_shared: bool = False
    """Whether several images may rightly have one map, as one view in fog and in rain has."""

    table: ClassTable | None = None
    """What the numbers and colours in label files mean; None where they are the classes' ids, or there are no files."""

    def __len__(self) -> int:
        return len(self.names)

    def files(self, index: int) -> Mapping[str, Path]:
        """Where a sample comes from: `image`, `depth`, `labels` or another word -> its own file.

        Empty where samples have no files of their own, but are frames of one large file, say.
        """
        return {}

    def scene(self, index: int) -> str:
        """The place or film that a sample was taken from: splits should share none. Empty where not known."""
        return ""

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        """`Sample.labels` alone, for counting: quicker than `read` where the image need not be decoded."""
        return self.read(index).labels

    @abstractmethod
    def read(self, index: int) -> Sample:
        """Decodes one sample.

        Raises:
            DataError: naming the file, when it is unreadable or not what the data set promises.
        """


DATASETS = Registry[Dataset]("data set")


def resolve_root(root: Path | None, default: str) -> Path:
    """A data root as a path that exists: relative ones lie under `$DENSEVIT_DATASETS`, default `./datasets`.

    Args:
        default: the folder's name when the user names none, `nyu` say.
    """
    base = Path(os.environ.get("DENSEVIT_DATASETS", "datasets"))
    path = (root or Path(default)).expanduser()
    tried = [path] if path.is_absolute() else [base / path, path]
    for candidate in tried:
        if candidate.exists():
            return candidate
    where = " and ".join(str(p.resolve()) for p in dict.fromkeys(tried))
    raise DataError(f"no data at {where}. Set `root`, or $DENSEVIT_DATASETS to the folder that holds '{path}'.")


def open_dataset(spec: ComponentConfig) -> Dataset:
    """A data set by its spec, `{type: nyu, split: test}`.

    Raises:
        ConfigError, DataError
    """
    return DATASETS.check(spec, "data").build()
