"""Our ViT is timm's, number by number, and its parts do what their papers say."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

from densevit.errors import ConfigError
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.vit.embeddings import resample_pos_embed, sincos_pos_embed
from densevit.models.vit.vision_transformer import SIZES, VisionTransformer
from densevit.registry import choices

PLAIN = {"embed_dim": 48, "depth": 3, "num_heads": 3, "img_size": 64, "patch_size": 16}
DINO = {"embed_dim": 48, "depth": 3, "num_heads": 3, "img_size": 518, "patch_size": 14, "init_values": 1e-1}


def theirs(**options: Any) -> Any:
    torch.manual_seed(0)
    model = timm.models.VisionTransformer(num_classes=0, dynamic_img_size=True, **options).eval()
    for parameter in model.parameters():  # biases and tokens that start at zero would hide mistakes
        torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (PLAIN, {"grid": (4, 4)}),
        ({**PLAIN, "qk_norm": True, "qkv_bias": False}, {"grid": (4, 4), "qk_norm": True, "qkv_bias": False}),
        (
            {**PLAIN, "class_token": False, "global_pool": "avg", "fc_norm": False},
            {"grid": (4, 4), "class_token": False},
        ),
        (DINO, {"grid": (37, 37), "layer_scale": 1e-1}),
        (
            {**DINO, "reg_tokens": 4, "no_embed_class": True},
            {"grid": (37, 37), "layer_scale": 1e-1, "registers": 4, "no_embed_class": True},
        ),
        (
            {**PLAIN, "pre_norm": True, "act_layer": "quick_gelu"},
            {"grid": (4, 4), "norm_pre": True, "mlp": "quick_gelu"},
        ),
        (
            {**PLAIN, "mlp_layer": timm.layers.SwiGLUPacked, "act_layer": nn.SiLU},
            {"grid": (4, 4), "mlp": "swiglu_packed"},
        ),
        ({**PLAIN, "act_layer": "gelu_tanh"}, {"grid": (4, 4), "mlp": "gelu_tanh"}),
        ({**PLAIN, "mlp_layer": timm.layers.SwiGLU, "act_layer": nn.SiLU}, {"grid": (4, 4), "mlp": "swiglu"}),
        ({**PLAIN, "in_chans": 1, "mlp_ratio": 3}, {"grid": (4, 4), "channels": 1, "mlp_ratio": 3.0}),
    ],
    ids=["plain", "qk-norm", "no-class-token", "dinov2", "registers", "clip", "packed", "gelu-tanh", "swiglu", "grey"],
)
@pytest.mark.parametrize("cells", [(4, 4), (3, 5)])
def test_same_weights_give_the_same_tokens_and_gradients_as_timm(
    given: dict[str, Any], options: dict[str, Any], cells: tuple[int, int]
) -> None:
    reference, patch = theirs(**given), given["patch_size"]
    ours = VisionTransformer(48, 3, 3, patch, **options).eval()
    ours.load_state_dict(reference.state_dict())
    image = torch.randn(2, options.get("channels", 3), cells[0] * patch, cells[1] * patch)
    expected = reference.forward_intermediates(image, [0, 2], norm=True, return_prefix_tokens=True, output_fmt="NLC")[1]
    found = ours.block_outputs(image, [0, 2], norm=True)
    for tap, other in zip(found, expected, strict=True):
        patches, prefix = other if isinstance(other, tuple) else (other, other[:, :0])
        torch.testing.assert_close(tap.patches, patches, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(tap.prefix, prefix, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours(image), reference.forward_features(image), atol=1e-5, rtol=1e-5)
    ours(image).square().mean().backward()
    reference.forward_features(image).square().mean().backward()
    for name, parameter in ours.named_parameters():
        expected = reference.get_parameter(name).grad
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(parameter.grad, expected, atol=1e-5 * scale, rtol=1e-3)


@pytest.mark.parametrize("mode", ["", "jax", "jax_nlhb", "moco"])
@pytest.mark.parametrize("fix", [False, True])
def test_starts_have_timms_spread(mode: Any, fix: bool) -> None:
    # Not the same draws: timm brings its own truncated normal. Spread and extremes tell the distributions apart:
    # the largest of a uniform one lies at 1.7 deviations, of JAX's truncated at 2.3, of timm's at about 4.
    torch.manual_seed(0)
    size = {"img_size": 16, "patch_size": 4, "embed_dim": 96, "depth": 2, "num_heads": 3, "num_classes": 7}
    reference = timm.models.VisionTransformer(**size, reg_tokens=8, weight_init=mode, fix_init=fix)
    mine = VisionTransformer(96, 2, 3, 4, grid=(4, 4), registers=8, init=mode, fix_init=fix)
    for name, tensor in mine.state_dict().items():
        expected = reference.state_dict()[name]
        few = 0.3 if tensor.numel() < 500 else 0.1
        assert tensor.mean().item() == pytest.approx(expected.mean().item(), abs=few * expected.std().item() + 1e-7), (
            name
        )
        assert tensor.std().item() == pytest.approx(expected.std().item(), rel=few), name
        assert tensor.abs().max().item() == pytest.approx(expected.abs().max().item(), rel=3 * few), name


def test_gates_and_positions_start_as_asked() -> None:
    torch.manual_seed(0)
    packed, plain = (VisionTransformer(24, 2, 3, 4, mlp=mlp).state_dict() for mlp in ("swiglu_packed", "swiglu"))
    assert set(packed["blocks.0.mlp.fc1.bias"][48:].tolist()) == {1.0}
    assert set(plain["blocks.0.mlp.fc1_g.bias"].tolist()) == {1.0}
    # torch's own start, where it is skipped: uniform in 1 / sqrt(24)
    skipped = VisionTransformer(24, 1, 3, 4, init="skip").blocks[0].attn.qkv.weight
    assert skipped.std().item() == pytest.approx(1 / (3 * 24) ** 0.5, rel=0.05)
    for positions, std in (("learned", 0.02), ("zeros", 0.0), ("random", 1.0)):
        vit = VisionTransformer(64, 1, 2, 4, grid=(8, 8), positions=positions)
        assert vit.pos_embed.std().item() == pytest.approx(std, rel=0.05) and vit.pos_embed.requires_grad


@pytest.mark.parametrize("how", ["antialias", "offset", "bilinear"])
def test_positions_on_their_own_grid_stay_as_they_are(how: Any) -> None:
    cells = torch.randn(1, 12, 5)
    assert resample_pos_embed(cells, (3, 4), (3, 4), how) is cells
    assert resample_pos_embed(cells, (3, 4), (7, 5), how).shape == (1, 35, 5)


def test_offset_resampling_is_the_one_of_dinov2() -> None:
    # By scale factor (new + 0.1) / old a bicubic sample lies at (i + 0.5) * old / (new + 0.1) - 0.5, not at ... / new.
    ramp = torch.arange(37.0).view(1, 37, 1).repeat_interleave(37, dim=1)  # the value is the row
    rows = resample_pos_embed(ramp, (37, 37), (20, 20), "offset").view(20, 20)[:, 10]
    expected = (torch.arange(20) + 0.5) * 37 / 20.1 - 0.5
    # With a = -0.75 bicubic bends a ramp by up to 0.05; without the offset row 17 would lie 0.16 further on.
    torch.testing.assert_close(rows[2:-2], expected[2:-2], atol=0.06, rtol=0)


def test_sines_and_cosines_tell_cells_apart_and_neighbours_alike() -> None:
    positions = sincos_pos_embed(32, (5, 7))[0]
    likeness = positions @ positions.T
    assert positions.shape == (35, 32)
    assert (likeness.argmax(1) == torch.arange(35)).all()
    assert likeness[0, 1] > likeness[0, 3] > likeness[0, 34]
    # the first half speaks of columns: it is the same in every row
    torch.testing.assert_close(positions[0, :16], positions[7, :16])


def test_numbers_that_do_not_fit_are_refused() -> None:
    for build, says in (
        (lambda: ViTEncoder(dim=32, heads=3, depth=1), "not a multiple of heads"),
        (lambda: ViTEncoder(dim=32, heads=2, depth=1, image_size=(224, 8)), "holds no patch"),
        (lambda: ViTEncoder(dim=30, heads=2, depth=1, positions="sincos"), "multiple of 4"),
        (lambda: VisionTransformer(10, 1, 3, 4), "10 channels are not divisible by 3 heads"),
        (
            lambda: VisionTransformer(10, 1, 2, 4, mlp="swiglu_packed", mlp_ratio=1.5),
            "even number of hidden channels, not 15",
        ),
    ):
        with pytest.raises(ConfigError, match=says):
            build()


def test_timm_weights_of_another_size_load_by_name() -> None:
    source = timm.models.VisionTransformer(**{**PLAIN, "img_size": 96}, num_classes=10)
    encoder = ViTEncoder(dim=48, depth=3, heads=3, image_size=(64, 128), out_indices=(1,))
    encoder.load_weights(source.state_dict(), "w.pth")
    torch.testing.assert_close(encoder.vit.blocks[1].mlp.fc1.weight, source.blocks[1].mlp.fc1.weight)
    expected = timm.layers.resample_abs_pos_embed(source.pos_embed, [4, 8], [6, 6], num_prefix_tokens=1)
    torch.testing.assert_close(encoder.vit.pos_embed, expected)


def test_sizes_that_a_config_may_name_are_the_published_ones() -> None:
    assert choices(ViTEncoder, "size") == tuple(SIZES)
    with torch.device("meta"):
        for size in ("tiny", "small", "base", "large"):
            reference = timm.create_model(f"vit_{size}_patch16_224", num_classes=0)
            shapes = {name: tensor.shape for name, tensor in reference.state_dict().items()}
            vit = VisionTransformer(*SIZES[size], 16)
            assert {name: tensor.shape for name, tensor in vit.state_dict().items()} == shapes


def test_one_channel_is_the_mean_of_three() -> None:
    encoder = ViTEncoder(size="nano", patch_size=4, image_size=28, channels=1)
    seen = []
    encoder.vit.patch_embed.register_forward_hook(lambda _, args, __: seen.append(args[0]))
    image = torch.rand(2, 3, 28, 28)
    assert encoder(image).maps[-1].shape == (2, 32, 7, 7)
    torch.testing.assert_close(seen[0], ((image - encoder.mean) / encoder.std).mean(1, keepdim=True))


def test_every_option_of_a_block_reaches_the_encoders_blocks() -> None:
    encoder = ViTEncoder(
        size="nano",
        mlp="swiglu_packed",
        mlp_ratio=3,
        qk_norm=True,
        norm_pre=True,
        eps=1e-5,
        attn_drop=0.1,
        proj_drop=0.2,
    )
    block = encoder.vit.blocks[1]
    assert (block.attn.attn_drop.p, block.attn.proj_drop.p, block.mlp.drop.p) == (0.1, 0.2, 0.2)
    assert block.mlp.fc1.out_features == 2 * block.mlp.fc2.in_features == 96
    assert {block.norm1.eps, block.attn.q_norm.eps, encoder.vit.norm.eps, encoder.vit.norm_pre.eps} == {1e-5}
    assert encoder.vit.patch_embed.proj.bias is None
