"""UPerNet beside mmseg's UPerHead written out: the same layers in plain calls, with the decoder's own weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DecoderOutput
from densevit.models.decoders.upernet import UPerNet, adaptive_mean
from densevit.structures import EncoderOutput, FeatureSpec


def features(*maps: Tensor) -> EncoderOutput:
    return EncoderOutput(maps, tuple(torch.zeros(2, 1, x.shape[1]) for x in maps), (96, 160))


def scattered(decoder: UPerNet) -> UPerNet:
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return decoder


def conv_module(block: nn.Module, x: Tensor) -> Tensor:
    conv, norm, _ = block.children()
    x = F.conv2d(x, conv.weight, padding=conv.weight.shape[-1] // 2)
    return F.batch_norm(x, None, None, norm.weight, norm.bias, training=True).relu()


def resize(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, like.shape[-2:], mode="bilinear", align_corners=False)


def head(decoder: UPerNet, levels: list[Tensor]) -> Tensor:
    """UPerHead: psp_forward, top-down path, fpn_convs, fpn_bottleneck."""
    deepest = levels[-1]
    pooled = [
        resize(conv_module(b, F.adaptive_avg_pool2d(deepest, s)), deepest)
        for b, s in zip(decoder.pooled, (1, 2, 3, 6), strict=True)
    ]
    laterals = [conv_module(b, x) for b, x in zip(decoder.laterals, levels, strict=False)]
    laterals.append(conv_module(decoder.deepest, torch.cat([deepest, *pooled], 1)))
    for i in (2, 1, 0):
        laterals[i] = laterals[i] + resize(laterals[i + 1], laterals[i])
    outputs = [conv_module(b, x) for b, x in zip(decoder.smooth, laterals, strict=False)] + [laterals[3]]
    return conv_module(decoder.fuse, torch.cat([resize(x, outputs[0]) for x in outputs], 1))


def test_on_a_plain_vit_it_is_feature2pyramid_and_uperhead() -> None:
    torch.manual_seed(0)
    maps = [torch.randn(2, 8, 6, 10) for _ in range(4)]
    decoder = scattered(UPerNet([FeatureSpec(8, 16)] * 4, 1, channels=12))
    assert decoder.output == FeatureSpec(12, 4)
    (first, norm, _, second), (up,) = decoder.rescale[0], decoder.rescale[1]
    x = F.conv_transpose2d(maps[0], first.weight, first.bias, stride=2)
    x = F.gelu(F.batch_norm(x, None, None, norm.weight, norm.bias, training=True))
    levels = [
        F.conv_transpose2d(x, second.weight, second.bias, stride=2),
        F.conv_transpose2d(maps[1], up.weight, up.bias, stride=2),
        maps[2],
        F.max_pool2d(maps[3], 2, 2),
    ]
    torch.testing.assert_close(decoder(features(*maps)), head(decoder, levels), atol=1e-5, rtol=1e-5)


def test_levels_of_a_pyramid_encoder_are_taken_as_they_are() -> None:
    torch.manual_seed(0)
    maps = [torch.randn(2, 4 * 2**i, 24 // 2**i, 40 // 2**i) for i in range(4)]
    decoder = scattered(UPerNet([FeatureSpec(4 * 2**i, 4 * 2**i, tokens=False) for i in range(4)], 0, channels=12))
    torch.testing.assert_close(decoder(features(*maps)), head(decoder, maps), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("h", "w"), [(1, 1), (2, 5), (6, 7), (13, 40)])
@pytest.mark.parametrize("side", [1, 2, 3, 6])
def test_the_mean_of_bins_is_torchs(h: int, w: int, side: int) -> None:
    x = torch.randn(2, 3, h, w)
    torch.testing.assert_close(adaptive_mean(x, side), F.adaptive_avg_pool2d(x, side))


def test_the_auxiliary_classifier_is_on_the_third_level_and_for_training_alone() -> None:
    decoder = UPerNet([FeatureSpec(8, 16)] * 4, 1, channels=12, auxiliary=5)
    given = features(*(torch.randn(2, 8, 6, 10) for _ in range(4)))
    output = decoder(given)
    assert isinstance(output, DecoderOutput) and output.extras["auxiliary"].shape == (2, 5, 96, 160)
    assert isinstance(decoder.eval()(given), Tensor)


def test_five_levels_and_strides_between_powers_of_two_are_refused() -> None:
    with pytest.raises(ConfigError, match="takes 1 to 4 feature maps, not 5"):
        UPerNet([FeatureSpec(8, 16)] * 5, 1)
    with pytest.raises(ConfigError, match="cannot resize a map by"):
        UPerNet([FeatureSpec(8, 12), *[FeatureSpec(8, 16)] * 3], 1)
