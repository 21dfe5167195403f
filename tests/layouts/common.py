"""What the writers of layouts share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import Dataset, open_dataset
from densevit.structures import Sample
from densevit_rooms.layouts import measured, number, put

__all__ = ["labelled", "lines_of", "matrix_text", "measured", "number", "opened", "parted", "put"]


def parted(name: str) -> tuple[str, str]:
    """Folder and file of a sample's name, the folder never empty.

    >>> parted("alley_1/frame_0001"), parted("a")
    (('alley_1', 'frame_0001'), ('scene_0001', 'a'))
    """
    folder, _, file = name.rpartition("/")
    return folder or "scene_0001", file


def matrix_text(sample: Sample) -> bytes:
    """Intrinsics as three lines of numbers."""
    assert sample.intrinsics is not None
    return "\n".join(" ".join(f"{x:.9g}" for x in row) for row in sample.intrinsics).encode()


def lines_of(names: Iterable[str]) -> bytes:
    """A text file of a name a line."""
    return "".join(f"{name}\n" for name in names).encode()


def labelled(sample: Sample) -> Int64[np.ndarray, "h w"]:
    """Class ids."""
    if sample.labels is None:
        raise ValueError(f"'{sample.name}' has no labels to write.")
    return sample.labels


def opened(type_: str, root: Path, **options: Any) -> Dataset:
    return open_dataset({"type": type_, "root": str(root), **options})
