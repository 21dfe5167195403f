"""Bytes resized in plain arithmetic are those that OpenCV and torch give."""

import numpy as np
import pytest
import torch

from densevit.errors import ConfigError
from densevit.ops.resize import Interpolation
from densevit.ops.resize_uint8 import resize_bytes, resize_bytes_traced
from densevit.structures import Size

SIZES: list[Size] = [(150, 233), (47, 53), (101, 77), (80, 233), (40, 60), (20, 40)]  # from 80 x 120
WAYS: list[tuple[Interpolation, bool]] = [
    ("bilinear", False), ("bicubic", False), ("area", False), ("bilinear", True), ("bicubic", True)
]  # fmt: skip
CASES = [(*way, size) for way in WAYS for size in SIZES if way[0] != "area" or (size[0] <= 80 and size[1] <= 120)]


@pytest.mark.parametrize(("interpolation", "antialias", "size"), CASES)
def test_bytes_are_those_of_the_libraries(interpolation: Interpolation, antialias: bool, size: Size) -> None:
    draw = np.random.default_rng(0)
    image = torch.from_numpy(draw.integers(0, 256, (2, 3, 80, 120), dtype=np.uint8)).float()
    expected = resize_bytes(image / 255, size, interpolation, antialias=antialias) * 255
    off = (resize_bytes_traced(image, size, interpolation, antialias) - expected).abs()
    assert off.max() < 1.001
    assert (off > 0.5).float().mean() <= 1e-3


def test_what_is_not_written_is_refused() -> None:
    with pytest.raises(ConfigError, match="'area' here, which no graph can say yet"):
        resize_bytes_traced(torch.zeros(1, 3, 8, 8), (16, 4), "area", antialias=False)
