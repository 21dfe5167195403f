"""Every family of plain timm ViTs runs at any size, as timm itself runs it."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.layers.pos_embed_sincos import RotaryEmbeddingDinoV3
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.timm_adapters import beit
from densevit.models.timm_adapters.vit import CachedRope
from densevit.models.vit.embeddings import resample_pos_embed, sincos_pos_embed

# (name, patch, prefix tokens); two blocks each, for time.
FAMILIES = [
    ("vit_small_patch14_dinov2", 14, 1),
    ("vit_small_patch14_reg4_dinov2", 14, 5),
    ("vit_small_patch16_dinov3", 16, 5),  # RoPE
    ("vit_tiny_patch16_224", 16, 1),  # AugReg
    ("vit_small_patch8_224", 8, 1),
    ("deit_tiny_distilled_patch16_224", 16, 2),
    ("deit3_small_patch16_224", 16, 1),  # LayerScale, no position for the class
    ("vit_base_patch32_clip_224", 32, 1),  # norm before the blocks
    ("vit_base_patch16_siglip_224", 16, 0),  # attention pooling, no class token
    ("vit_base_patch16_224.mae", 16, 1),
    ("beit_base_patch16_224", 16, 1),  # relative positions
    ("eva02_tiny_patch14_224", 14, 1),  # RoPE, SwiGLU
]


def build(name: str, width: dict[str, int] | None = None, **options: Any) -> TimmEncoder:
    torch.manual_seed(0)
    return TimmEncoder(name=name, arguments={"depth": 2, **(width or {})}, **options).eval()


@pytest.mark.parametrize(("name", "patch", "prefix"), FAMILIES)
def test_a_family_runs_at_odd_and_oblong_sizes(name: str, patch: int, prefix: int) -> None:
    encoder = build(name, {"embed_dim": 64, "num_heads": 2})
    assert (encoder.patch_size, encoder.prefix_tokens, encoder.out_indices) == (patch, prefix, (0, 1))
    for h, w in ((75, 101), (2 * patch, 3 * patch)):
        features = encoder(torch.rand(1, 3, h, w))
        grid = (-(-h // patch), -(-w // patch))
        assert features.image_size == (grid[0] * patch, grid[1] * patch)
        for tokens, first, spec in zip(features.maps, features.prefix, encoder.features, strict=True):
            assert tokens.shape == (1, spec.channels, *grid)
            assert first.shape == (1, prefix, spec.channels)
    sum(tokens.square().mean() for tokens in features.maps).backward()  # type: ignore[union-attr]
    assert [parameter for parameter in encoder.parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("norm", [True, False])
def test_maps_are_timms_own_intermediates(norm: bool) -> None:
    encoder = build("vit_tiny_patch16_224", norm=norm)
    image = torch.rand(2, 3, 224, 224)
    torch.manual_seed(0)
    reference = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=0, dynamic_img_size=True).eval()
    reference.load_state_dict(encoder.vit.state_dict(), strict=norm)
    normalised = (image - 0.5) / 0.5  # AugReg's own, not ImageNet's
    expected = reference.forward_intermediates(normalised, [0, 1], norm=norm, intermediates_only=True)
    for ours, theirs in zip(encoder(image).maps, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def noisy_beit(**options: Any) -> Any:
    torch.manual_seed(0)
    model = timm.create_model("beit_base_patch16_224", depth=2, num_classes=0, **options).eval()
    for block in model.blocks:  # zero at birth
        torch.nn.init.normal_(block.attn.relative_position_bias_table)
    return model


def at_window(table: Tensor, h: int, w: int) -> Tensor:
    """MiDaS: the 27 x 27 offsets of a 14 x 14 window, bilinear; the class token's three as they are."""
    image = table[:-3].T.reshape(1, 12, 27, 27)
    image = torch.nn.functional.interpolate(image, size=(2 * h - 1, 2 * w - 1), mode="bilinear")
    return torch.cat([image.reshape(12, -1).T, table[-3:]])


@pytest.mark.parametrize("size", [pytest.param((224, 224), marks=pytest.mark.slow), (64, 160)])
def test_beit_on_another_grid_is_timms_beit_with_its_tables_resampled(size: tuple[int, int]) -> None:
    source, reference = noisy_beit(), noisy_beit(img_size=size)
    encoder = build("beit_base_patch16_224")
    encoder.load_weights(source.state_dict(), "beit.pth")
    for block, other in zip(reference.blocks, source.blocks, strict=True):
        table = at_window(other.attn.relative_position_bias_table.detach(), size[0] // 16, size[1] // 16)
        block.attn.relative_position_bias_table.data = table
    image = torch.rand(1, 3, *size)
    expected = reference.forward_intermediates((image - 0.5) / 0.5, [0, 1], norm=True, intermediates_only=True)
    for ours, theirs in zip(encoder(image).maps, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_beits_index_is_the_published_one() -> None:
    expected = timm.models.beit.gen_relative_position_index((3, 5))
    assert torch.equal(beit.relative_position_index((3, 5), torch.device("cpu")), expected)


def test_beit_weights_of_another_window_are_resampled() -> None:
    encoder, source = build("beit_base_patch16_224", image_size=96), noisy_beit()
    encoder.load_weights(source.state_dict(), "beit.pth")
    expected = at_window(source.blocks[1].attn.relative_position_bias_table, 6, 6)
    torch.testing.assert_close(encoder.vit.blocks[1].relative_position_bias_table, expected)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224"])
def test_checkpointing_changes_no_gradient(name: str) -> None:
    def gradient(enable: bool) -> Tensor:
        encoder = build(name)
        encoder.set_grad_checkpointing(enable)
        torch.manual_seed(1)
        encoder(torch.rand(1, 3, 32, 48)).maps[-1].square().mean().backward()
        return torch.stack([p.grad.norm() for p in encoder.parameters() if p.grad is not None])

    torch.testing.assert_close(gradient(False), gradient(True))


@pytest.mark.parametrize("name", [*(name for name, *_ in FAMILIES), "vit_small_patch16_rope_mixed_224"])
def test_what_has_no_weight_decay_is_what_timm_says(name: str) -> None:
    encoder = build(name)
    expected = encoder.vit.no_weight_decay() & {name for name, _ in encoder.vit.named_parameters()}
    assert encoder.no_weight_decay() == {f"vit.{name}" for name in expected}


def test_dinov2s_original_file_loads() -> None:
    encoder = build("vit_small_patch14_reg4_dinov2", image_size=70)
    state = {name: torch.randn_like(tensor) for name, tensor in encoder.vit.state_dict().items()}
    original = {("register_tokens" if name == "reg_token" else name): tensor for name, tensor in state.items()}
    original["mask_token"] = torch.zeros(1, 384)
    # In DINOv2's own layout the class token has a position, and the grid is 37 x 37.
    original["pos_embed"] = torch.cat([torch.ones(1, 1, 384), torch.randn(1, 37 * 37, 384)], dim=1)
    encoder.load_weights(original, "dinov2.pth")
    torch.testing.assert_close(encoder.vit.reg_token, state["reg_token"])
    torch.testing.assert_close(encoder.vit.cls_token, state["cls_token"] + 1)
    assert encoder.vit.pos_embed.shape == (1, 25, 384)


NO_TOKENS = "not a plain grid of tokens; use a ViT: DINOv2"
WRONG = [
    ({"name": "swin_tiny_patch4_window7_224"}, NO_TOKENS),
    ({"name": "samvit_base_patch16"}, NO_TOKENS),
    ({"name": "vit_smal_patch14_dinov2"}, "Nearest: vit_small_patch14_dinov2"),
    ({"name": "vit_tiny_patch16_224.nope"}, r"no weights 'nope'\. Known: .*augreg_in21k"),
    ({"name": "vit_tiny_patch16_224", "arguments": {"hedgehogs": 3}}, "does not take these arguments: .*hedgehogs"),
    ({"name": "vit_tiny_patch16_224", "pretrained": True, "weights": Path("w.pth")}, "exclude each other"),
]


def test_a_square_grid_of_as_many_cells_as_that_of_the_encoder_is_resampled() -> None:
    square, wide = build("vit_tiny_patch16_224", image_size=96), build("vit_tiny_patch16_224", image_size=(64, 144))
    state = {name: tensor.clone() for name, tensor in square.vit.state_dict().items()}
    state["pos_embed"][:, 1:] = sincos_pos_embed(192, (6, 6))
    wide.load_weights(state, "w.pth")
    assert torch.equal(wide.vit.pos_embed[:, 1:], resample_pos_embed(state["pos_embed"][:, 1:], (6, 6), (4, 9)))
    again = build("vit_tiny_patch16_224", image_size=(64, 144))
    again.load_weights(wide.vit.state_dict(), "own.pth")
    assert torch.equal(again.vit.pos_embed, wide.vit.pos_embed)


def test_wrong_names_tags_and_arguments_are_explained() -> None:
    for options, says in WRONG:
        with pytest.raises(ConfigError, match=says):
            TimmEncoder(**options)


def test_the_rotary_table_of_a_graph_for_any_size_is_that_of_timm() -> None:
    rope = RotaryEmbeddingDinoV3(dim=32)
    rope.__class__ = CachedRope
    for size in ([4, 6], [6, 4], [1, 9], [37, 49]):
        torch.testing.assert_close(rope.symbolic_embed(size), rope.get_embed(size), rtol=1e-5, atol=1e-5)

    class Table(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return rope.get_embed([x.shape[0], x.shape[1]]) + 0 * x.sum()

    sides = {0: torch.export.Dim("h", min=2, max=99), 1: torch.export.Dim("w", min=2, max=99)}
    table = torch.export.export(Table(), (torch.zeros(4, 6),), dynamic_shapes=(sides,)).module()
    torch.testing.assert_close(table(torch.zeros(5, 3)), rope.get_embed([5, 3]), rtol=1e-5, atol=1e-5)


def test_the_rotary_table_of_dinov3_is_made_once_for_a_grid_and_anew_for_augmentation() -> None:
    encoder = TimmEncoder(name="vit_small_patch16_dinov3", image_size=64)
    rope = encoder.vit.rope
    plain = RotaryEmbeddingDinoV3.get_embed(rope, [3, 5])
    assert torch.equal(rope.get_embed((3, 5)), plain) and rope.get_embed((3, 5)) is rope.get_embed((3, 5))
    assert len(rope.get_embed((4, 4))) == 16
    with torch.inference_mode():
        rope.get_embed((3, 5))
    assert not rope.get_embed((3, 5)).is_inference()
    rope.aug_active, rope.shift_coords = True, 0.5
    assert not torch.equal(rope.train().get_embed((3, 5)), rope.get_embed((3, 5)))
