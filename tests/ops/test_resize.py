"""Sizes and resampling, of floats and of bytes, are those of the field's published pre-processing."""

from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from densevit.errors import ConfigError
from densevit.ops.resize import Interpolation, crop, network_size, network_steps, pad_to_multiple, resize
from densevit.ops.resize_uint8 import emulate_resize_uint8, resize_uint8
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Size


# (h, w) -> (h, w) by hand or from running what is published; None: the rule has no size.
@pytest.mark.parametrize(
    ("mode", "bound", "multiple", "size", "expected"),
    [
        # Depth Anything V2's own Resize.
        ("lower_bound", (518, 518), 14, (480, 640), (518, 686)),
        ("lower_bound", (518, 518), 14, (300, 600), (518, 1036)),
        ("lower_bound", (518, 518), 14, (518, 518), (518, 518)),
        ("lower_bound", (520, 520), 14, (100, 100), (532, 532)),  # 37.14 patches: the nearest, 518, is too small
        ("upper_bound", (504, 504), 14, (375, 1242), (154, 504)),  # scale 504 / 1242, short side 152.2
        ("upper_bound", (510, 510), 14, (10, 1000), (14, 504)),  # keeps one patch; 510 is no multiple
        ("fixed", (384, 510), 32, (375, 1242), (384, 512)),
        ("native", None, 14, (37, 101), (37, 101)),
        # torchvision's Resize(768), which keeps no multiple: int(768 * long / short).
        ("shortest", (768, 768), 16, (480, 640), (768, 1024)),
        ("shortest", (768, 768), 16, (530, 701), (768, 1015)),
        ("shortest", (768, 768), 16, (701, 530), (1015, 768)),
    ],
)
def test_sizes_are_the_published_ones(mode: Any, bound: Size | None, multiple: int, size: Size, expected: Size) -> None:
    assert network_size(size, PreprocessConfig(mode=mode, size=bound), multiple) == expected


def test_a_rule_without_its_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a size"):
        network_size((10, 10), PreprocessConfig(mode="fixed"), 14)


@pytest.mark.parametrize(
    ("interpolation", "flag"), [("bicubic", cv2.INTER_CUBIC), ("bilinear", cv2.INTER_LINEAR), ("area", cv2.INTER_AREA)]
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((40, 48), (52, 30)),
        ((40, 48), (28, 40)),
        ((40, 48), (20, 16)),
        ((12, 1920), (14, 924)),
        ((8, 6000), (14, 3002)),
    ],
)
def test_images_are_resized_as_opencv_resizes_float64(
    interpolation: str, flag: int, before: tuple[int, int], after: tuple[int, int]
) -> None:
    if interpolation == "area" and after[0] > before[0]:
        return  # OpenCV has its own variant of INTER_AREA for sides that grow
    image = np.random.default_rng(0).random((*before, 3))  # MiDaS and Depth Anything divide bytes by 255.0: float64
    expected = cv2.resize(image, after[::-1], interpolation=flag)
    x = torch.from_numpy(image).float().permute(2, 0, 1)[None]
    ours = resize(x, after, interpolation, opencv=True)  # type: ignore[arg-type]
    # 1e-6 is rounding of float32; torch's positions in float32 would be off by up to 7e-4 at 6000 pixels.
    np.testing.assert_allclose(
        ours[0].permute(1, 2, 0).numpy(), expected, atol=1e-6 if interpolation != "area" else 2e-5
    )


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "memory_format", [pytest.param(torch.contiguous_format, marks=pytest.mark.slow), torch.channels_last]
)
def test_a_batch_on_a_cpu_is_resized_as_in_an_exported_graph(
    interpolation: Interpolation, memory_format: torch.memory_format
) -> None:
    class Resize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return resize(x, (70, 31), interpolation, opencv=True)

    # 3 images of 70 rows: the strips in which a CPU resizes them cross from one image to the next.
    images = torch.rand(3, 3, 90, 29).contiguous(memory_format=memory_format)
    graph = torch.export.export(Resize(), (images,))
    assert not any("embedding_bag" in str(node.target) for node in graph.graph.nodes)
    found = Resize()(images)
    assert found.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(found, graph.module()(images), atol=1e-6, rtol=0)


def test_area_keeps_the_mean() -> None:
    image = torch.rand(1, 2, 31, 47)
    torch.testing.assert_close(resize(image, (7, 9), "area").mean((2, 3)), image.mean((2, 3)))


@pytest.mark.parametrize("size", [(28, 28), (29, 41), (1, 13), (27, 15)])
def test_cropping_undoes_padding(size: tuple[int, int]) -> None:
    image = torch.rand(2, 3, *size)
    padded, offset = pad_to_multiple(image, 14)
    assert padded.shape[-2] % 14 == padded.shape[-1] % 14 == 0
    assert padded.shape[-2] - size[0] < 14
    assert padded.sum() == pytest.approx(image.sum().item(), rel=1e-5)
    torch.testing.assert_close(crop(padded, offset, size), image)


def test_padding_is_centred_with_the_odd_pixel_at_the_bottom_right() -> None:
    # 11 missing rows: 5 above and 6 below.
    padded, offset = pad_to_multiple(torch.ones(1, 1, 17, 28), 14)
    assert offset == (5, 0)
    assert padded[0, 0, :5].sum() == padded[0, 0, 22:].sum() == 0


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
