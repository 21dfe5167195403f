"""What can be asked of a ViT: equal to timm's answers, and nothing more computed than asked."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay
from torch import Tensor, nn

from densevit.config.schema import Optim
from densevit.engine.optim import parameter_groups
from densevit.errors import ConfigError, DensevitError
from densevit.models.vit.classifier import ViTClassifier
from densevit.models.vit.intermediate_layers import resolve_layers
from densevit.models.vit.vision_transformer import VisionTransformer

OPTIONS: dict[str, Any] = {"registers": 2, "layer_scale": 0.1}


@pytest.fixture
def pair() -> tuple[VisionTransformer, Any]:
    theirs = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3, num_classes=0, reg_tokens=2, init_values=0.1
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    ours = VisionTransformer(24, 4, 3, 8, grid=(4, 4), **OPTIONS).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for item in value:
            yield from tensors(item)


def test_intermediates_are_timms(pair: Any) -> None:
    ours, theirs = pair
    image = torch.randn(2, 3, 32, 32)
    for indices, form, *flags in product([None, 2, [0, 2], [-1, 1]], ["NCHW", "NLC"], [True, False], [True, False]):
        asked: dict[str, Any] = {"indices": indices, "norm": flags[0], "output_fmt": form}
        asked["return_prefix_tokens"] = flags[1]
        found, expected = ours.forward_intermediates(image, **asked), theirs.forward_intermediates(image, **asked)
        assert [t.shape for t in tensors(found)] == [t.shape for t in tensors(expected)], asked
        for a, b in zip(tensors(found), tensors(expected), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
        only = ours.forward_intermediates(image, **asked, intermediates_only=True)
        assert all(torch.equal(a, b) for a, b in zip(tensors(only), tensors(found[1]), strict=True)), asked


def test_get_intermediate_layers_is_timms(pair: Any) -> None:
    ours, theirs = pair
    image = torch.randn(1, 3, 32, 32)
    for asked in ({}, {"n": 2, "reshape": True}, {"n": [0, 3], "return_prefix_tokens": True, "norm": True}):
        found, expected = ours.get_intermediate_layers(image, **asked), theirs.get_intermediate_layers(image, **asked)
        for a, b in zip(tensors(found), tensors(expected), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_without_a_prefix_there_is_none_to_return_and_padded_images_give_the_padded_grid() -> None:
    vit = VisionTransformer(16, 2, 2, 4, grid=(2, 2), class_token=False)
    maps = vit.forward_intermediates(torch.rand(1, 3, 8, 8), return_prefix_tokens=True, intermediates_only=True)
    assert [m.shape for m in maps] == [(1, 16, 2, 2)] * 2
    vit, image = VisionTransformer(16, 1, 2, 8, grid=(2, 2), pad=True), torch.rand(1, 3, 17, 9)
    assert vit.grid_of(image) == (3, 2)
    assert vit.forward_intermediates(image, 1)[1][0].shape == (1, 16, 3, 2)


def test_stopping_early_runs_no_later_block(pair: Any) -> None:
    ours, _ = pair
    ran = []
    for index, block in enumerate(ours.blocks):
        block.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
    image = torch.randn(1, 3, 32, 32)
    x, _ = ours.forward_intermediates(image, [1], stop_early=True)
    assert ran == [0, 1]
    torch.testing.assert_close(x, ours.norm(ours.blocks[1](ours.blocks[0](ours.embed(image)))))
    ran.clear()
    ours.block_outputs(image, [0])
    assert ran == [0]
    ran.clear()
    list(ours.attention(image, [2]))
    assert ran == [0, 1]


def test_a_tap_is_rows_of_patches_and_the_prefix(pair: Any) -> None:
    ours, _ = pair
    image = torch.randn(1, 3, 32, 32)
    (tap,) = ours.block_outputs(image, 1, norm=True)
    assert (tap.patches.shape, tap.prefix.shape) == ((1, 16, 24), (1, 3, 24))
    torch.testing.assert_close(torch.cat([tap.prefix, tap.patches], dim=1), ours(image))


def test_dropped_patches_make_no_map() -> None:
    vit = VisionTransformer(16, 1, 2, 4, grid=(4, 4), patch_drop=0.5)
    image = torch.rand(1, 3, 16, 16)
    assert vit.forward_intermediates(image, 1, output_fmt="NLC")[1][0].shape == (1, 8, 16)  # type: ignore[union-attr]
    with pytest.raises(DensevitError, match="8 patches are no 4x4 grid"):
        vit.forward_intermediates(image, 1)
    assert vit.eval().forward_intermediates(image, 1)[1][0].shape == (1, 16, 4, 4)  # type: ignore[union-attr]


def test_layers_are_chosen_as_in_timm_and_those_that_do_not_exist_refused() -> None:
    chosen = [resolve_layers(layers, 3) for layers in (None, 2, [-1], [2, 0], range(1, 3))]
    assert chosen == [[0, 1, 2], [1, 2], [2], [0, 2], [1, 2]]
    for layers in (0, 4, -1, [3], [-4], [], [0, -3]):
        with pytest.raises(ConfigError, match="different numbers from -3 to 2, or how many of the last 3"):
            resolve_layers(layers, 3)


def test_pruning_drops_blocks_norm_and_head_and_keeps_the_outputs() -> None:
    vit = ViTClassifier(16, 4, 2, 4, grid=(2, 2), num_classes=5, pool="map").eval()
    image = torch.rand(1, 3, 8, 8)
    before = vit.block_outputs(image, [0, 1])
    assert vit.prune_intermediate_layers([0, 1], prune_norm=True) == [0, 1]
    assert len(vit.blocks) == 2
    assert not any(name.startswith(("head", "norm.", "attn_pool", "fc_norm")) for name in vit.state_dict())
    assert all(torch.equal(a.patches, b.patches) for a, b in zip(before, vit.block_outputs(image, [0, 1]), strict=True))


def test_layers_hold_every_parameter_once_from_patches_to_head() -> None:
    vit = ViTClassifier(16, 2, 2, 4, grid=(2, 2), num_classes=5, pool="map", norm_pre=True, registers=1)
    groups = vit.layer_groups()
    assert len(groups) == 1 + 2 + 1
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in vit.parameters())
    assert any(p is vit.norm_pre.weight for p in groups[0])
    assert {id(p) for p in vit.head.parameters()} <= {id(p) for p in groups[-1]}


def test_layer_decay_groups_are_timms() -> None:
    theirs = timm.models.VisionTransformer(img_size=8, patch_size=4, embed_dim=16, depth=3, num_heads=2, num_classes=5)
    ours = ViTClassifier(16, 3, 2, 4, grid=(2, 2), num_classes=5)
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


def test_checkpointing_gives_the_same_gradients_of_intermediates(pair: Any) -> None:
    ours, _ = pair
    image = torch.randn(1, 3, 32, 32)
    grads = []
    for enable in (False, True):
        ours.set_grad_checkpointing(enable)
        ours.zero_grad()
        sum(t.square().mean() for t in tensors(ours.forward_intermediates(image, 2))).backward()
        grads.append([p.grad.clone() for p in ours.parameters()])
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(*grads, strict=True))
