"""Bytes are resized by the code that published pipelines call; the sizes of torchvision and Depth Anything 3."""

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from densevit.errors import ConfigError
from densevit.ops.resize import Interpolation, network_size, network_steps, resize
from densevit.ops.resize_uint8 import emulate_resize_uint8, resize_uint8
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Size


def noise(h: int, w: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (h, w, 3), dtype=np.uint8)


def as_tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255


@pytest.mark.parametrize(
    ("name", "flag"), [("bilinear", cv2.INTER_LINEAR), ("bicubic", cv2.INTER_CUBIC), ("area", cv2.INTER_AREA)]
)
def test_bytes_are_opencvs(name: str, flag: int) -> None:
    image = noise(41, 57)
    expected = cv2.resize(image, (31, 23), interpolation=flag)
    found = resize_uint8(as_tensor(image), (23, 31), name)  # type: ignore[arg-type]
    assert torch.equal(found, as_tensor(expected))
    # Rounding floats afterwards is not the same, or this module need not be.
    rounded = resize(as_tensor(image), (23, 31), name).mul(255).round().div(255)  # type: ignore[arg-type]
    assert name == "area" or not torch.equal(found, rounded)


def test_antialiased_bytes_are_pils_up_to_the_last_bit() -> None:
    image = noise(41, 57)
    expected = as_tensor(np.array(Image.fromarray(image).resize((31, 23), Image.Resampling.BILINEAR)))
    found = resize_uint8(as_tensor(image), (23, 31), "bilinear", antialias=True)
    assert (found - expected).abs().max() <= 1.01 / 255


@pytest.mark.parametrize(("size", "flag"), [((20, 30), cv2.INTER_AREA), ((50, 40), cv2.INTER_CUBIC)])
def test_adaptive_is_area_to_shrink_and_bicubic_to_grow(size: tuple[int, int], flag: int) -> None:
    image = noise(41, 57)
    expected = cv2.resize(image, size[::-1], interpolation=flag)
    assert torch.equal(resize_uint8(as_tensor(image), size, "adaptive"), as_tensor(expected))
    name = "area" if flag == cv2.INTER_AREA else "bicubic"
    assert torch.equal(resize(as_tensor(image), size, "adaptive"), resize(as_tensor(image), size, name))


# By hand, from `InputProcessor`: the longer side to 504, rounded; then to the nearest multiple of 14, ties upwards.
@pytest.mark.parametrize(
    ("size", "steps"),
    [
        ((480, 640), [(378, 504), (378, 504)]),
        ((375, 1242), [(152, 504), (154, 504)]),
        ((700, 530), [(504, 382), (504, 378)]),
        ((60, 90), [(336, 504), (336, 504)]),
        ((343, 504), [(343, 504), (350, 504)]),  # 343 is 24.5 patches
        ((1, 2000), [(1, 504), (14, 504)]),  # no image may vanish
    ],
)
def test_the_longest_side_goes_first(size: tuple[int, int], steps: list[tuple[int, int]]) -> None:
    rule = PreprocessConfig(mode="longest", size=(504, 504))
    assert network_steps(size, rule, 14) == steps
    assert network_size(size, rule, 14) == steps[-1]


# torchvision's Resize(768): int(768 * long / short).
@pytest.mark.parametrize(
    ("size", "expected"), [((480, 640), (768, 1024)), ((530, 701), (768, 1015)), ((701, 530), (1015, 768))]
)
def test_the_shortest_side_keeps_no_multiple(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert network_size(size, PreprocessConfig(mode="shortest", size=(768, 768)), 16) == expected


SIZES: list[Size] = [(150, 233), (47, 53), (101, 77), (80, 233), (40, 60), (20, 40)]  # from 80 x 120
WAYS: list[tuple[Interpolation, bool]] = [
    ("bilinear", False), ("bicubic", False), ("area", False), ("bilinear", True), ("bicubic", True)
]  # fmt: skip
CASES = [(*way, size) for way in WAYS for size in SIZES if way[0] != "area" or (size[0] <= 80 and size[1] <= 120)]


@pytest.mark.parametrize(("interpolation", "antialias", "size"), CASES)
def test_bytes_are_those_of_the_libraries(interpolation: Interpolation, antialias: bool, size: Size) -> None:
    draw = np.random.default_rng(0)
    image = torch.from_numpy(draw.integers(0, 256, (2, 3, 80, 120), dtype=np.uint8)).float()
    expected = resize_uint8(image / 255, size, interpolation, antialias=antialias) * 255
    off = (emulate_resize_uint8(image, size, interpolation, antialias) - expected).abs()
    assert off.max() < 1.001
    assert (off > 0.5).float().mean() <= 1e-3


def test_an_interpolation_that_is_not_emulated_is_refused() -> None:
    with pytest.raises(ConfigError, match="'area' here, which an exported graph cannot do yet"):
        emulate_resize_uint8(torch.zeros(1, 3, 8, 8), (16, 4), "area", antialias=False)
