"""What the writers of layouts share."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from densevit.structures import Sample
from densevit.utils.atomic_io import atomic_write


def put(path: Path, data: bytes) -> None:
    """Writes a file, making its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, lambda file: file.write(data))


def measured(sample: Sample) -> Float32[np.ndarray, "h w"]:
    """Metres, 0 where not valid."""
    if sample.depth is None or sample.valid is None:
        raise ValueError(f"'{sample.name}' has no depth to write.")
    return np.where(sample.valid, sample.depth, np.float32(0))


def number(name: str, position: int) -> int:
    """The number that ends a sample's name, or its position."""
    digits = Path(name).name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else position


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


def labelled(sample: Sample) -> Int64[np.ndarray, "h w"]:
    """Class ids."""
    if sample.labels is None:
        raise ValueError(f"'{sample.name}' has no labels to write.")
    return sample.labels
