"""Taps, groups and padding of token encoders."""

import pytest
import torch

from densevit.errors import ConfigError
from densevit.models.encoders.base import resolve_out_indices
from densevit.models.encoders.vit import ViTEncoder

# Depth Anything V2 and DINOv2 publish these for 12, 24 and 40 blocks.
PUBLISHED = {12: (2, 5, 8, 11), 24: (4, 11, 17, 23), 40: (9, 19, 29, 39), 3: (0, 1, 2), 1: (0,)}


def test_default_out_indices_are_the_published_ones_and_an_int_means_the_last_blocks() -> None:
    assert {depth: resolve_out_indices(None, depth) for depth in PUBLISHED} == PUBLISHED
    assert resolve_out_indices(4, 12) == (8, 9, 10, 11)  # Depth Anything V1
    for wrong in (0, 13, (), (3, 3), (5, 2), (-1,), (11, 12)):
        with pytest.raises(ConfigError, match="rising numbers from 0 to 11"):
            resolve_out_indices(wrong, 12)


def test_layers_hold_every_parameter_once_from_stem_to_last_block_and_tokens_have_no_weight_decay() -> None:
    encoder = ViTEncoder(dim=32, depth=4, heads=2, registers=2)
    groups = encoder.layer_groups()
    assert len(groups) == 1 + 4
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in encoder.parameters())
    assert any(p is encoder.vit.pos_embed for p in groups[0])
    assert any(p is encoder.vit.blocks[2].attn.qkv.weight for p in groups[3])
    assert encoder.no_weight_decay() == {"vit.cls_token", "vit.reg_token", "vit.pos_embed"}


def test_normalisation_comes_before_padding() -> None:
    # A padded border of zeros is then mean grey, whatever mean and std are.
    encoder = ViTEncoder(dim=32, depth=1, heads=2, patch_size=16, class_token=False)
    seen = []
    encoder.vit.patch_embed.register_forward_hook(lambda _, args, __: seen.append(args[0]))
    features = encoder(torch.ones(1, 3, 20, 16))
    assert features.image_size == (32, 16)
    assert seen[0][:, :, :6].abs().sum() == seen[0][:, :, 26:].abs().sum() == 0
    torch.testing.assert_close(seen[0][0, :, 10, 3], (1 - encoder.mean.flatten()) / encoder.std.flatten())
