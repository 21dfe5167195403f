"""Decoders compute what is published; where we reorder for speed, the result is the same."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_models import toy_features, toy_specs

from densevit.errors import ConfigError
from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.linear import Linear
from densevit.models.decoders.readout import READOUTS, Project
from densevit.structures import EncoderOutput, FeatureSpec


def published_dpt(decoder: Any, given: EncoderOutput) -> Tensor:
    """Depth Anything V2's forward from its description, in its own order: upsample, then the 1x1."""
    levels = [part.conv(part.resize(part.project(x))) for part, x in zip(decoder.reassemble, given.maps, strict=True)]

    def unit(block: Any, x: Tensor) -> Tensor:
        return x + block.conv2(F.relu(block.conv1(F.relu(x))))

    def grow(x: Tensor, size: Any) -> Tensor:
        return F.interpolate(x, size=size, mode="bilinear", align_corners=True)

    x = unit(decoder.fusions[3].refine, levels[3])
    x = decoder.fusions[3].out(grow(x, levels[2].shape[-2:]))
    for i in (2, 1, 0):
        size = levels[i - 1].shape[-2:] if i else tuple(2 * side for side in levels[0].shape[-2:])
        fusion = decoder.fusions[i]
        x = fusion.out(grow(unit(fusion.refine, x + unit(fusion.level, levels[i])), size))
    return x


@pytest.mark.parametrize("grid", [(3, 5), (4, 7), (1, 1)])
def test_dpt_equals_the_published_order_of_operations(grid: tuple[int, int]) -> None:
    decoder = DPT(toy_specs(4), 1, channels=8)
    given = toy_features(4, grid=grid)
    torch.testing.assert_close(decoder(given), published_dpt(decoder, given), atol=1e-5, rtol=1e-5)


def test_dpts_levels_have_dinov2s_widths_and_strides_and_few_feature_maps_are_spread_over_them() -> None:
    # D/8, D/4, D/2, D; x4, x2, x1, /2 (5 x 7 tokens -> 20 x 28, 10 x 14, 5 x 7, 3 x 4)
    decoder = DPT(toy_specs(4, channels=64), 1, channels=8)
    assert [part.project.out_channels for part in decoder.reassemble] == [8, 16, 32, 64]
    sizes = [
        part(torch.randn(1, 64, 5, 7), torch.zeros(1, 1, 64), nn.Identity()).shape[-2:] for part in decoder.reassemble
    ]
    assert [tuple(size) for size in sizes] == [(20, 28), (10, 14), (5, 7), (3, 4)]
    assert decoder.fusions[3].level is None  # no weights that never run
    sources = [DPT(toy_specs(levels), 1, channels=8).sources for levels in (1, 2, 3, 4)]
    assert sources == [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2], [0, 1, 2, 3]]


def test_dpt_takes_convolutional_levels_as_they_are() -> None:
    # DPT-hybrid: strides 4, 8, 16, 16 need no resizing but the last one's.
    hybrid = [FeatureSpec(8, 4), FeatureSpec(8, 8), FeatureSpec(16, 16), FeatureSpec(16, 16)]
    decoder = DPT(hybrid, 1, channels=8)
    kinds = [type(part.resize) for part in decoder.reassemble]
    assert kinds == [nn.Identity, nn.Identity, nn.Identity, nn.Conv2d]
    with pytest.raises(ConfigError, match="cannot resize a map by 3/2"):
        DPT([FeatureSpec(8, 24), FeatureSpec(8, 32), FeatureSpec(8, 64), FeatureSpec(8, 64)], 1)


def test_projecting_the_readout_is_a_linear_map_of_patch_and_class_side_by_side() -> None:
    readout, given = Project(16, 5), toy_features(1, prefix=5)
    x, token = given.maps[0], given.prefix[0][:, 0]
    both = torch.cat([x, token[:, :, None, None].expand_as(x)], dim=1)
    expected = F.gelu(readout.project(both.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
    torch.testing.assert_close(readout(x, given.prefix[0]), expected)


@pytest.mark.parametrize("readout", ["add", "project"])
def test_the_class_token_reaches_every_pixel_and_registers_none(readout: Any) -> None:
    decoder, given = DPT(toy_specs(4), 5, channels=8, readout=readout), toy_features(4, prefix=5)
    before = decoder(given)
    registers, classes = [], []
    for tokens in given.prefix:
        registers.append(torch.cat([tokens[:, :1], tokens[:, 1:] + 1], dim=1))
        classes.append(tokens + torch.tensor([1.0, 0, 0, 0, 0])[:, None])
    assert torch.equal(before, decoder(EncoderOutput(given.maps, tuple(registers), given.image_size)))
    after = decoder(EncoderOutput(given.maps, tuple(classes), given.image_size))
    assert ((before - after).abs().amax(1) > 0).all()


def test_linear_is_linear_and_orders_patches_before_the_class_token_and_can_project_and_grow() -> None:
    decoder, given = Linear(toy_specs(2), 1, class_token=True), toy_features(2)
    x = decoder(given)
    assert x.shape == (2, 64, 3, 5)
    assert torch.equal(x[:, :16], given.maps[0]) and torch.equal(x[:, 32:48], given.maps[1])
    assert torch.equal(x[:, 16:32, 2, 3], given.prefix[0][:, 0])
    decoder = Linear(toy_specs(2, stride=14), 0, channels=5, scale=4)
    assert decoder(toy_features(2, stride=14)).shape == (2, 5, 12, 20)
    assert decoder.output == FeatureSpec(5, 4)  # 3.5


def test_conv_transpose_halves_width_while_it_doubles_size() -> None:
    for stride, options, channels, grows in (
        (16, {}, 48, 4),  # 192 -> 96 -> 48
        (16, {"stride": 1}, 32, 16),  # 192 -> 96 -> 48 -> 32 -> 32
        (14, {}, 48, 4),  # 14 / 4 is no power of two: 3.5 is finer than asked
        (8, {"kernel": 4}, 96, 2),
        (4, {}, 192, 1),
    ):
        decoder = ConvTranspose(toy_specs(1, 192, stride), 1, **options)
        assert decoder(toy_features(1, 192, stride)).shape == (2, channels, 3 * grows, 5 * grows)
        assert decoder.output == FeatureSpec(channels, max(1, round(stride / grows)))


def test_several_levels_are_summed_or_concatenated() -> None:
    given = toy_features(3)
    assert ConvTranspose(toy_specs(3), 1, fuse="concat").steps[0][0].in_channels == 48
    summed = ConvTranspose(toy_specs(3), 1, fuse="sum", stride=16)
    torch.testing.assert_close(summed(given), given.maps[0] + given.maps[1] + given.maps[2])


def test_what_a_decoder_cannot_take_it_refuses() -> None:
    two_widths = [FeatureSpec(8, 16), FeatureSpec(16, 16)]
    for decoder, given, prefix, options, says in (
        (DPT, toy_specs(5), 1, {}, "1 to 4 feature maps, not 5"),
        (DPT, toy_specs(4), 0, {"readout": "project"}, "needs a class token"),
        (Linear, toy_specs(4), 0, {"class_token": True}, "no class token"),
        (ConvTranspose, two_widths, 1, {"fuse": "sum"}, r"one width, not \[8, 16\]; 'concat' fits"),
    ):
        with pytest.raises(ConfigError, match=says):
            decoder(given, prefix, **options)


def test_the_deepest_level_passes_a_unit_of_its_own_only_where_asked() -> None:
    plain, smp = (set(DPT(toy_specs(4), 1, channels=16, deepest_unit=unit).state_dict()) for unit in (False, True))
    assert smp - plain == {f"fusions.3.level.conv{n}.{part}" for n in (1, 2) for part in ("weight", "bias")}


def test_average_adds_the_mean_of_class_token_and_registers() -> None:
    x, prefix = torch.zeros(1, 2, 3, 3), torch.tensor([[[1.0, 0.0], [3.0, 4.0]]])
    y = READOUTS["average"](2, 2)(x, prefix)
    assert y[0, :, 1, 1].tolist() == [2.0, 2.0]
