"""Taps, groups and padding of token encoders, and state dicts, which come wrapped in all sorts of ways."""

from typing import Any

import pytest
import torch
from torch import Tensor

from densevit.errors import CheckpointError, ConfigError
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


def small(**options: Any) -> ViTEncoder:
    return ViTEncoder(**{"dim": 32, "depth": 3, "heads": 2, "image_size": 64, **options})


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "encoder.", "module.pretrained.", "encoder.vit."])
def test_wrappers_are_taken_off(prefix: str) -> None:
    source, target = small(), small()
    state: dict[str, Tensor] = {prefix + name: tensor for name, tensor in source.vit.state_dict().items()}
    state |= {"head.weight": torch.zeros(3)} if not prefix else {"depth_head.weight": torch.zeros(3)}
    target.load_weights(state, "w.pth")
    for ours, theirs in zip(target.parameters(), source.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_blocks_and_norms_that_are_not_used_may_be_in_the_file() -> None:
    target = small(out_indices=(0, 1), norm=False)
    assert len(target.vit.blocks) == 2
    target.load_weights(small().vit.state_dict(), "w.pth")


def test_files_of_other_encoders_are_refused_with_the_first_five_differences() -> None:
    own = small().vit.state_dict()
    two = {f"{who}.{name}": tensor for who in ("student", "teacher") for name, tensor in own.items()}
    for state, says in (
        (small(depth=4).vit.state_dict(), r"12 unexpected: blocks\.3\.norm1\.weight, .*, \.\.\."),
        (two, r"holds 2 encoders, under 'student\.', 'teacher\.'"),
        (small(dim=64).vit.state_dict(), r"of another shape: cls_token \(file \[1, 1, 64\], model \[1, 1, 32\]\)"),
    ):
        with pytest.raises(CheckpointError, match=says):
            small().load_weights(state, "w.pth")
