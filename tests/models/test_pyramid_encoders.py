"""Encoders whose maps have several strides: the ResNet hybrid and Swin, beside timm's own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.layers import HybridEmbed, StdConv2dSame
from timm.models.resnetv2 import ResNetV2
from timm.optim import param_groups_layer_decay

from densevit.config.schema import Optim
from densevit.engine.optim import parameter_groups
from densevit.errors import CheckpointError, ConfigError
from densevit.models.decoders.linear import Linear, PoolTokens
from densevit.models.encoders.hybrid import HybridEncoder
from densevit.models.encoders.swin import SwinEncoder
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.encoders.vit import ViTEncoder
from densevit.structures import FeatureSpec

SMALL = {"dim": 64, "depth": 2, "heads": 1, "widths": (128, 128, 256), "depths": (1, 2, 1), "image_size": 96}
VITS = ("vit_small_patch14_reg4_dinov2", "beit_base_patch16_224", "eva02_tiny_patch14_224")
TINY = {"embed_dim": 32, "depth": 3, "num_heads": 2, "patch_size": 14}
SWINS = ("swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256")
SWIN = {"embed_dim": 24, "depths": [1, 1, 2, 1], "num_heads": [1, 2, 4, 8]}


def timm_hybrid() -> torch.nn.Module:
    """timm's model of the sizes of `SMALL`."""
    torch.manual_seed(0)
    resnet = ResNetV2(
        layers=(1, 2, 1),
        channels=(128, 128, 256),
        num_classes=0,
        global_pool="",
        preact=False,
        stem_type="same",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )
    sizes = {"img_size": 96, "embed_dim": 64, "depth": 2, "num_heads": 1, "num_classes": 0}
    model = timm.create_model("vit_base_r50_s16_384", embed_layer=partial(HybridEmbed, backbone=resnet), **sizes)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model.eval()


def test_the_hybrid_is_timms() -> None:
    theirs, ours = timm_hybrid(), HybridEncoder(**SMALL, norm=True).eval()  # type: ignore[arg-type]
    ours.load_weights(theirs.state_dict(), "timm")
    image = torch.rand(2, 3, 96, 96)
    stages: list[torch.Tensor] = []
    for stage in theirs.patch_embed.backbone.stages[:2]:  # type: ignore[union-attr,index]
        stage.register_forward_hook(lambda module, given, answer: stages.append(answer))
    with torch.no_grad():
        tokens = theirs.forward_features((image - 0.5) / 0.5)  # type: ignore[operator]
        found = ours(image)
    assert [tuple(map_.shape) for map_ in found.maps] == [
        (2, 128, 24, 24),
        (2, 128, 12, 12),
        (2, 64, 6, 6),
        (2, 64, 6, 6),
    ]
    for mine, other in zip(found.maps[:2], stages, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.maps[-1].flatten(2).mT, tokens[:, 1:], rtol=1e-4, atol=1e-5)
    assert [prefix.shape[1] for prefix in found.prefix] == [0, 0, 1, 1]


def test_the_hybrid_takes_any_size_and_its_layers_hold_every_parameter_once() -> None:
    encoder = HybridEncoder(**SMALL)
    found = encoder(torch.rand(1, 3, 50, 70))
    assert found.image_size == (64, 80)
    assert [tuple(map_.shape[-2:]) for map_ in found.maps] == [(16, 20), (8, 10), (4, 5), (4, 5)]
    listed = [id(parameter) for group in encoder.layer_groups() for parameter in group]
    assert sorted(listed) == sorted(map(id, encoder.parameters()))


def test_a_hybrid_that_cannot_be_or_a_file_without_its_resnet_is_refused() -> None:
    for options, words in (
        ({"stages": (3,)}, "not increasing indices"),
        ({"stages": (1, 0)}, "not increasing indices"),
        ({"widths": (128, 128)}, "2 widths and 3 depths"),
        ({"widths": (128, 130, 256)}, "130 cannot be normalised"),
    ):
        with pytest.raises(ConfigError, match=words):
            HybridEncoder(**{**SMALL, **options})
    state = {name: tensor for name, tensor in timm_hybrid().state_dict().items() if "stages.1.blocks.0" not in name}
    with pytest.raises(CheckpointError, match=r"missing: stages\.1\.blocks\.0"):
        HybridEncoder(**SMALL).load_weights(state, "cut.pt")


@pytest.mark.parametrize("name", SWINS)
def test_swin_is_timms(name: str) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model(name, img_size=64, num_classes=7, **SWIN).eval()
    for parameter in theirs.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    ours = SwinEncoder(name=name, image_size=64, arguments=SWIN).eval()  # type: ignore[arg-type]
    ours.load_weights(theirs.state_dict(), "timm")
    image = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs.forward_intermediates((image - ours.mean) / ours.std, intermediates_only=True)
        found = ours(image)
    assert [spec.stride for spec in ours.features] == [4, 8, 16, 32]
    for mine, other in zip(found.maps, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_swin_takes_any_size_and_pads_it_to_32() -> None:
    encoder = SwinEncoder(name="swinv2_tiny_window8_256", image_size=64, arguments=SWIN)  # type: ignore[arg-type]
    found = encoder(torch.rand(1, 3, 50, 70))
    assert found.image_size == (64, 96)
    assert [tuple(map_.shape[-2:]) for map_ in found.maps] == [(16, 24), (8, 12), (4, 6), (2, 3)]


def test_stages_behind_the_last_tap_are_dropped() -> None:
    encoder = SwinEncoder(name="swinv2_tiny_window8_256", image_size=64, out_indices=(0, 1), arguments=SWIN)  # type: ignore[arg-type]
    assert (encoder.patch_size, len(encoder.swin.layers)) == (8, 2)
    listed = [id(parameter) for group in encoder.layer_groups() for parameter in group]
    assert sorted(listed) == sorted(map(id, encoder.parameters()))


def test_a_vit_is_no_swin() -> None:
    with pytest.raises(ConfigError, match="for plain ViTs use encoder 'timm'"):
        SwinEncoder(name="vit_tiny_patch16_224")


def timm_vit() -> torch.nn.Module:
    return timm.models.VisionTransformer(
        img_size=8, patch_size=4, embed_dim=16, depth=3, num_heads=2, num_classes=0, pre_norm=True, reg_tokens=1
    )


@pytest.mark.parametrize(
    ("build", "theirs"),
    [
        (lambda: ViTEncoder(dim=16, depth=3, heads=2, patch_size=4, norm_pre=True, registers=1), timm_vit),
        (lambda: HybridEncoder(**SMALL, norm=True), timm_hybrid),
        *((partial(TimmEncoder, name=name, image_size=28, arguments=TINY), None) for name in VITS),
        *((partial(SwinEncoder, name=name, image_size=64, arguments=SWIN), None) for name in SWINS),
    ],
)
def test_layer_decay_groups_are_timms(build: Callable[[], Any], theirs: Callable[[], Any] | None) -> None:
    ours = build()
    model = theirs() if theirs else getattr(ours, "vit", None) or ours.swin
    optim = Optim(weight_decay=0.05, layer_decay=0.5, encoder_lr_scale=1.0)
    rates = {
        id(p): (group["scale"], group["weight_decay"])
        for group in parameter_groups(ours, ours, optim)
        for p in group["params"]
    }
    groups = param_groups_layer_decay(model, 0.05, model.no_weight_decay(), layer_decay=0.5)
    expected = {id(p): (group["lr_scale"], group["weight_decay"]) for group in groups for p in group["params"]}
    for name, parameter in ours.named_parameters():
        timms = name.replace("backbone.", "patch_embed.backbone.").removeprefix("vit.").removeprefix("swin.")
        assert rates[id(parameter)] == pytest.approx(expected[id(model.get_parameter(timms))]), name


@pytest.mark.parametrize("decoder", [partial(Linear, class_token=True), partial(PoolTokens, pool="token")])
def test_maps_without_a_class_token_have_none_to_give(decoder: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="class token"):
        decoder([FeatureSpec(8, 16, tokens=False), FeatureSpec(8, 16)], 1)


def conv_stem_vit(**options: object) -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(dim=32, depth=2, heads=2, image_size=48, stem="conv", **options).eval()  # type: ignore[arg-type]


def test_stem_features_are_the_maps_inside_the_stem() -> None:
    encoder, plain = conv_stem_vit(stem_features=(4, 8)), conv_stem_vit()
    plain.load_state_dict(encoder.state_dict())
    image = torch.rand(2, 3, 40, 56)  # not a multiple of 16
    found, tokens = encoder(image), plain(image)
    padded = F.pad((image - encoder.mean) / encoder.std, (4, 4, 4, 4))
    stages = [encoder.vit.patch_embed.proj[: i + 1](padded) for i in range(4)]
    assert found.image_size == (48, 64) and [spec.stride for spec in encoder.features] == [4, 8, 16, 16]
    for got, expected in zip(found.maps, [stages[1], stages[2], *tokens.maps], strict=True):
        torch.testing.assert_close(got, expected)
    assert [prefix.shape[1:] for prefix in found.prefix] == [(0, 16), (0, 16), (1, 32), (1, 32)]
    for spec, map_ in zip(encoder.features, found.maps, strict=True):
        assert map_.shape[1] == spec.channels and spec.tokens == (spec.stride == 16)


def test_stem_features_need_a_convolutional_stem_that_has_them_and_no_decoder_of_the_last_blocks() -> None:
    for strides in ((3,), (8, 4), (4, 4), (32,)):
        with pytest.raises(ConfigError, match=r"would fit: rising strides of \[2, 4, 8, 16\]"):
            conv_stem_vit(stem_features=strides)
    with pytest.raises(ConfigError, match="use stem 'conv'"):
        ViTEncoder(dim=32, depth=2, heads=2, image_size=48, stem_features=(4,))
    with pytest.raises(ConfigError, match="stem_features"):
        conv_stem_vit(stem_features=(4,)).detach_last_blocks(1, out_indices=True)
