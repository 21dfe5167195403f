"""Samples of the public data sets' sizes, with a photograph's content, for tests of the readers."""

from functools import cache

import numpy as np
import pytest
from PIL import Image

from densevit.data.datasets.base import Dataset
from densevit.data.datasets.motorcycle import Motorcycle
from densevit.errors import DataError
from densevit.structures import Sample


@cache
def photo() -> Sample:
    return Motorcycle().read(0)


def small() -> Image.Image:
    """60 x 90 pixels of the photograph."""
    return Image.fromarray(photo().image[100:160, 200:290])


def sample(name: str, height: int = 480, width: int = 640, shift: int = 0) -> Sample:
    """The bundled photograph, repeated to a size and moved, so that samples differ; with labels 0 to 3."""
    real = photo()
    rows, columns = np.arange(height) % 500, (np.arange(width) + shift) % 741
    depth = np.ascontiguousarray(real.depth[np.ix_(rows, columns)])
    cx, cy = (320, 240) if (height > 240 and width > 320) else (width / 2, height / 2)
    return Sample(
        name=name,
        image=np.ascontiguousarray(real.image[np.ix_(rows, columns)]),
        depth=depth,
        valid=depth > 0,
        labels=np.floor(depth).astype(np.int64) % 4,
        intrinsics=np.array([[500.0, 0, cx], [0, 510.0, cy], [0, 0, 1]]),
    )


def assert_damage_is_named(data: Dataset, role: str) -> None:
    """A file of the first sample, cut off and then empty, is an error that names it."""
    path = data.files(0)[role]
    for content in (path.read_bytes()[:-40], b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=path.name):
            data.read(0)
