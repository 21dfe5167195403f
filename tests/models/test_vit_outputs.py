"""What can be asked of a ViT, and nothing more computed than asked; its parameters in groups as timm's."""

from typing import Any

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay

from densevit.config.schema import Optim
from densevit.engine.optim import parameter_groups
from densevit.models.vit.vision_transformer import VisionTransformer


@pytest.fixture
def vit() -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(24, 4, 3, 8, grid=(4, 4), registers=2, layer_scale=0.1).eval()


IMAGE = torch.linspace(-1, 1, 3 * 32 * 32).view(1, 3, 32, 32)


def test_no_block_after_the_last_that_is_asked_for_runs(vit: Any) -> None:
    ran = []
    for index, block in enumerate(vit.blocks):
        block.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
    (output,) = vit.block_outputs(IMAGE, [1])
    assert ran == [0, 1]
    expected = vit.blocks[1](vit.blocks[0](vit.embed(IMAGE)))
    torch.testing.assert_close(torch.cat([output.prefix, output.patches], dim=1), expected)


def test_layer_decay_groups_are_timms() -> None:
    theirs = timm.models.VisionTransformer(
        img_size=8, patch_size=4, embed_dim=16, depth=3, num_heads=2, num_classes=0, pre_norm=True, reg_tokens=1
    )
    ours = VisionTransformer(16, 3, 2, 4, grid=(2, 2), norm_pre=True, registers=1)
    expected = {
        id(parameter): (group["lr_scale"], group["weight_decay"])
        for group in param_groups_layer_decay(theirs, 0.05, theirs.no_weight_decay(), layer_decay=0.5)
        for parameter in group["params"]
    }
    optim = Optim(weight_decay=0.05, layer_decay=0.5, encoder_lr_scale=1.0)
    found = {
        id(parameter): (group["scale"], group["weight_decay"])
        for group in parameter_groups(ours, ours, optim)
        for parameter in group["params"]
    }
    for name, parameter in ours.named_parameters():
        assert found[id(parameter)] == pytest.approx(expected[id(theirs.get_parameter(name))]), name
    assert ours.no_weight_decay() == theirs.no_weight_decay() & set(dict(ours.named_parameters()))
