"""Decoders: shapes, strides and what published heads are made of, written out."""

from typing import Any, TypeVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_models import toy_features, toy_specs

from densevit.errors import ConfigError
from densevit.losses.segmentation import Auxiliary, CrossEntropy
from densevit.models.decoders.base import DECODERS, DecoderOutput
from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.linear import Linear
from densevit.models.decoders.mask_transformer import MaskTransformer
from densevit.models.decoders.readout import READOUTS, Project
from densevit.models.decoders.upernet import UPerNet, adaptive_mean
from densevit.models.heads.segmentation import LabelsHead, MasksHead
from densevit.structures import IGNORE, EncoderOutput, FeatureSpec


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
        (UPerNet, toy_specs(5), 1, {}, "takes 1 to 4 feature maps, not 5"),
        (UPerNet, [FeatureSpec(8, 12), *[FeatureSpec(8, 16)] * 3], 1, {}, "cannot resize a map by"),
        (MaskTransformer, toy_specs(1, 32), 1, {"classes": 5, "heads": 5}, "heads"),
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


def test_dinov3s_probe_drops_whole_channels_before_the_norm() -> None:
    decoder = Linear(toy_specs(1, channels=400), 1, norm="batch", dropout=0.1).train()
    x = decoder(toy_features(1, channels=400))
    # In a channel that was dropped for one image, all its pixels come out of the norm as one value.
    flat = x.flatten(2).std(2) < 1e-6
    assert 0.06 < flat.float().mean() < 0.14  # 800 channels: 10 % give or take four standard deviations
    assert x.mean((2, 3))[flat].abs().mean() > 1e-3  # the norm moved what was zero
    assert not (decoder.eval()(toy_features(1, channels=400)).flatten(2).std(2) < 1e-6).any()


def test_maps_of_other_sizes_meet_at_that_of_the_first() -> None:
    # mmseg's `resize_concat`
    fine, coarse = torch.randn(2, 8, 6, 10), torch.randn(2, 16, 3, 5)
    given = EncoderOutput((fine, coarse), (torch.randn(2, 1, 8), torch.randn(2, 1, 16)), (48, 80))
    both = [FeatureSpec(8, 8), FeatureSpec(16, 16)]
    decoder = Linear(both, 1)
    assert decoder.output == FeatureSpec(24, 8)
    expected = torch.cat([fine, F.interpolate(coarse, (6, 10), mode="bilinear")], 1)
    torch.testing.assert_close(decoder(given), expected)
    assert ConvTranspose(both, 1)(given).shape[-2:] == (12, 20)


def test_setr_pup_is_four_times_convolution_norm_relu_and_doubling() -> None:
    decoder = ConvTranspose(toy_specs(1), 1, upsample="bilinear", channels=24, norm="batch", stride=1).eval()
    assert len(decoder.steps) == 4
    x = toy_features(1).maps[0]
    for step in decoder.steps:
        conv, norm, *_ = step  # type: ignore[misc]
        assert conv.weight.shape[2:] == (3, 3) and conv.bias is None
        norm.running_mean.normal_()
        x = F.relu(norm(F.conv2d(x, conv.weight, padding=1)))
        x = F.interpolate(x, scale_factor=2, mode="bilinear")
    torch.testing.assert_close(decoder(toy_features(1)), x)
    assert x.shape == (2, 24, 48, 80)
    assert decoder.output == FeatureSpec(24, 1)


def dpt(**options: Any) -> tuple[DPT, LabelsHead]:
    torch.manual_seed(0)
    decoder = DPT(toy_specs(4), 1, channels=8, norm="batch", readout="project", **options)
    return decoder, LabelsHead(8, classes=5, hidden=8, dropout=0.1, align_corners=True)


def test_the_auxiliary_classifier_reads_the_last_fusion_but_one_and_speaks_in_training_only() -> None:
    decoder, _ = dpt(auxiliary=5)
    given = toy_features(4, grid=(4, 6))
    *_, coarser, finest = decoder.eval().fuse_levels(decoder.levels(given))
    assert torch.equal(decoder(given), finest)  # type: ignore[arg-type]
    decoder.train()
    for module in decoder.modules():  # so that training computes what evaluation does
        if isinstance(module, nn.BatchNorm2d | nn.Dropout2d):
            module.eval()
    found = decoder(given)
    assert isinstance(found, DecoderOutput)
    assert decoder.auxiliary is not None
    torch.testing.assert_close(found.extras["auxiliary"], decoder.auxiliary(coarser, (64, 96)))
    assert found.extras["auxiliary"].shape == (2, 5, 64, 96)
    torch.testing.assert_close(found.map, finest)


def test_the_auxiliary_loss_is_cross_entropy_of_the_extra_and_zero_without_labels() -> None:
    logits, extra = torch.randn(2, 5, 6, 8), torch.randn(2, 5, 6, 8, requires_grad=True)
    labels = torch.randint(0, 5, (2, 6, 8))
    found = Auxiliary(label_smoothing=0.1)(logits, labels, {"auxiliary": extra})
    torch.testing.assert_close(found, CrossEntropy(label_smoothing=0.1)(extra, labels, {}))
    nothing = Auxiliary()(logits, torch.full_like(labels, IGNORE), {"auxiliary": extra})
    nothing.backward()
    assert nothing.item() == 0
    assert extra.grad is not None and not extra.grad.any()
    with pytest.raises(ConfigError, match="needs a decoder with such a classifier"):
        Auxiliary()(logits, labels, {})


D = TypeVar("D", bound=nn.Module)


def features(*maps: Tensor, size: tuple[int, int] = (96, 160)) -> EncoderOutput:
    return EncoderOutput(maps, tuple(x.new_zeros(len(x), 1, x.shape[1]) for x in maps), size)


def scattered(decoder: D) -> D:
    """Gains of 1 and biases of 0 would hide faults."""
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


def segmenter(**options: Any) -> MaskTransformer:
    torch.manual_seed(0)
    decoder = MaskTransformer([FeatureSpec(32, 16)], 1, classes=5, heads=4, **options).eval()
    return scattered(decoder)


def test_segmenters_decoder_is_what_the_paper_says_written_out() -> None:
    decoder, x = segmenter(layers=1), torch.randn(2, 32, 3, 5)
    (block,) = decoder.blocks
    tokens = x.flatten(2).transpose(1, 2) @ decoder.proj_dec.weight.T + decoder.proj_dec.bias
    z = torch.cat([tokens, decoder.cls_emb.expand(2, -1, -1)], 1)
    y = F.layer_norm(z, (32,), block.norm1.weight, block.norm1.bias, 1e-5)  # torch's eps, as Segmenter's decoder
    mixed = []
    for image in y @ block.attn.qkv.weight.T + block.attn.qkv.bias:
        heads = []
        for h in range(4):
            q, k, v = (image[:, i * 32 + h * 8 : i * 32 + h * 8 + 8] for i in range(3))
            heads.append((q @ k.T / 8**0.5).softmax(-1) @ v)
        mixed.append(torch.cat(heads, -1))
    z = z + block.attn.proj(torch.stack(mixed))
    z = z + block.mlp(F.layer_norm(z, (32,), block.norm2.weight, block.norm2.bias, 1e-5))
    z = decoder.decoder_norm(z)
    patches, classes = z[:, :15] @ decoder.proj_patch, z[:, 15:] @ decoder.proj_classes
    cosine = F.cosine_similarity(patches[:, :, None], classes[:, None], dim=-1)  # of each patch and class
    expected = decoder.mask_norm(cosine).transpose(1, 2).reshape(2, 5, 3, 5)
    torch.testing.assert_close(decoder(features(x, size=(48, 80))), expected, atol=1e-5, rtol=1e-4)


def test_segmenters_decoder_by_itself_is_as_wide_as_the_encoder_with_a_head_per_64_channels() -> None:
    decoder = MaskTransformer([FeatureSpec(128, 16)], 1, classes=5)
    assert len(decoder.blocks) == 2  # Segmenter's config: 2 layers, dropout 0.1
    assert decoder.blocks[0].attn.heads == 2
    assert decoder.blocks[0].attn.attn_drop.p == 0.1
    assert decoder.output == FeatureSpec(5, 16)
    narrow = MaskTransformer([FeatureSpec(128, 16), FeatureSpec(128, 16)], 1, classes=5, channels=64)
    maps = (torch.randn(1, 128, 3, 5), torch.randn(1, 128, 3, 5))
    assert narrow(features(*maps, size=(48, 80))).shape == (1, 5, 3, 5)
    assert narrow.proj_dec.in_features == 256


def test_the_head_of_masks_only_upsamples() -> None:
    head = MasksHead(2, classes=("sky", "road"))
    x = torch.randn(1, 2, 3, 5, dtype=torch.bfloat16)
    expected = F.interpolate(x.float(), (48, 80), mode="bilinear")
    torch.testing.assert_close(head(x, (48, 80)), expected)
    assert not list(head.parameters())
    assert head.output.kind == "labels"
    assert head.output.classes == ("sky", "road")
    same = torch.randn(1, 2, 48, 80)
    assert torch.equal(head(same, (48, 80)), same)


def test_segmenters_decoder_and_the_head_of_masks_say_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="3 classes, but the decoder gives 2 maps"):
        MasksHead(2, classes=3)
    with pytest.raises(ConfigError, match="missing, and the data set names none"):
        DECODERS.check({"type": "mask_transformer"}, "decoder").build([FeatureSpec(32, 16)], 1)
