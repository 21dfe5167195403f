"""Sizes and resampling are those of the field's published pre-processing."""

import cv2
import numpy as np
import pytest
import torch

from densevit.errors import ConfigError
from densevit.ops.resize import Interpolation, crop, network_size, pad_to_multiple, resize
from densevit.preprocess_config import PreprocessConfig


def rule(mode: str, h: int, w: int) -> PreprocessConfig:
    return PreprocessConfig(mode=mode, size=(h, w))  # type: ignore[arg-type]


# (h, w) -> (h, w) of Depth Anything V2's own Resize, from running it (shared notes give 400x300 and 600x300 as w x h).
@pytest.mark.parametrize(
    ("size", "expected"),
    [((480, 640), (518, 686)), ((300, 400), (518, 686)), ((300, 600), (518, 1036)), ((518, 518), (518, 518))],
)
def test_lower_bound_rounds_as_depth_anything_does(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert network_size(size, rule("lower_bound", 518, 518), 14) == expected


def test_lower_bound_never_falls_below_a_bound_that_is_no_multiple() -> None:
    # 520 is 37.14 patches of 14: the nearest multiple, 518, is too small, so 532.
    assert network_size((100, 100), rule("lower_bound", 520, 520), 14) == (532, 532)


def test_upper_bound_never_exceeds_the_bound() -> None:
    # 375x1242 to a long side of 504: scale 504 / 1242, short side 152.2 -> 154 (nearest multiple of 14).
    assert network_size((375, 1242), rule("upper_bound", 504, 504), 14) == (154, 504)
    # 1:100 still keeps one patch; 510 is no multiple, so 504.
    assert network_size((10, 1000), rule("upper_bound", 510, 510), 14) == (14, 504)


def test_fixed_stretches_to_the_nearest_multiples() -> None:
    assert network_size((375, 1242), rule("fixed", 384, 510), 32) == (384, 512)


def test_native_changes_nothing() -> None:
    assert network_size((37, 101), PreprocessConfig(), 14) == (37, 101)


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
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
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
