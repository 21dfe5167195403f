"""Classification on a ViT: pooling, heads and starts are timm's."""

import math
from itertools import product
from typing import Any

import pytest
import timm
import torch
from torch import nn

from densevit.errors import ConfigError
from densevit.models.vit.classifier import ViTClassifier
from densevit.models.vit.configs import SIZES, create_vit

SIZE: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}


def theirs(**options: Any) -> Any:
    model = timm.models.VisionTransformer(**SIZE, **options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def ours(**options: Any) -> ViTClassifier:
    return ViTClassifier(24, 2, 3, 4, grid=(4, 4), num_classes=7, **options).eval()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {}),
        ({"global_pool": "avg"}, {"pool": "avg"}),
        ({"global_pool": "avg", "fc_norm": False}, {"pool": "avg", "fc_norm": False}),
        ({"global_pool": "avg", "reg_tokens": 2}, {"pool": "avg", "registers": 2}),
        ({"global_pool": "avg", "class_token": False}, {"pool": "avg", "class_token": False}),
        ({"global_pool": "map", "class_token": False}, {"pool": "map", "class_token": False}),
        ({"global_pool": "map", "mlp_ratio": 3}, {"pool": "map", "mlp_ratio": 3.0}),
        ({"pre_norm": True, "act_layer": "quick_gelu"}, {"norm_pre": True, "mlp": "quick_gelu"}),
        ({"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": nn.SiLU}, {"mlp": "swiglu_packed"}),
        ({"mlp_layer": timm.layers.SwiGLU, "act_layer": nn.SiLU}, {"mlp": "swiglu"}),
        ({"in_chans": 1}, {"channels": 1}),
        ({"dynamic_img_pad": True, "dynamic_img_size": True}, {"pad": True}),
    ],
)  # fmt: skip
def test_logits_and_gradients_are_timms(given: dict[str, Any], options: dict[str, Any]) -> None:
    reference, mine = theirs(**given), ours(**options)
    mine.load_state_dict(reference.state_dict())
    size = (14, 19) if options.get("pad") else (16, 16)
    image = torch.randn(2, options.get("channels", 3), *size)
    torch.testing.assert_close(mine.forward_features(image), reference.forward_features(image), atol=1e-5, rtol=1e-5)
    found, expected = mine(image), reference(image)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for logits in (found, expected):
        logits.square().mean().backward()
    for name, parameter in mine.named_parameters():
        scale = float(reference.get_parameter(name).grad.abs().max())
        torch.testing.assert_close(parameter.grad, reference.get_parameter(name).grad, atol=1e-5 * scale, rtol=1e-4)
    pooled = mine.forward_head(mine.forward_features(image), pre_logits=True)
    torch.testing.assert_close(pooled, reference.forward_head(reference.forward_features(image), pre_logits=True))


@pytest.mark.parametrize("mode", ["", "jax", "jax_nlhb", "moco"])
@pytest.mark.parametrize("fix", [False, True])
def test_starts_have_timms_spread(mode: Any, fix: bool) -> None:
    # Not the same draws: timm brings its own truncated normal. Spread and extremes tell the distributions apart:
    # the largest of a uniform one lies at 1.7 deviations, of JAX's truncated at 2.3, of timm's at about 4.
    torch.manual_seed(0)
    wide = {**SIZE, "embed_dim": 96}
    reference = timm.models.VisionTransformer(**wide, reg_tokens=8, weight_init=mode, fix_init=fix)
    mine = ViTClassifier(96, 2, 3, 4, grid=(4, 4), num_classes=7, registers=8, init=mode, fix_init=fix)
    for name, tensor in mine.state_dict().items():
        expected = reference.state_dict()[name]
        few = 0.3 if tensor.numel() < 500 else 0.1
        assert tensor.mean().item() == pytest.approx(expected.mean().item(), abs=few * expected.std().item() + 1e-7), (
            name
        )
        assert tensor.std().item() == pytest.approx(expected.std().item(), rel=few), name
        assert tensor.abs().max().item() == pytest.approx(expected.abs().max().item(), rel=3 * few), name


def test_heads_gates_and_positions_start_as_asked() -> None:
    torch.manual_seed(0)
    assert ours(init="jax_nlhb").head.bias.tolist() == pytest.approx([-math.log(7)] * 7)
    assert ours(init="jax").head.bias.tolist() == [0] * 7
    # torch's own start, where it is skipped: uniform in 1 / sqrt(24)
    assert ours(init="skip").head.weight.std().item() == pytest.approx(1 / math.sqrt(3 * 24), rel=0.15)
    assert set(ours(mlp="swiglu_packed").state_dict()["blocks.0.mlp.fc1.bias"][48:].tolist()) == {1.0}
    assert set(ours(mlp="swiglu").state_dict()["blocks.0.mlp.fc1_g.bias"].tolist()) == {1.0}
    for positions, std in (("learned", 0.02), ("zeros", 0.0), ("random", 1.0)):
        vit = ViTClassifier(64, 1, 2, 4, grid=(8, 8), positions=positions, num_classes=0)
        assert vit.pos_embed.std().item() == pytest.approx(std, rel=0.05) and vit.pos_embed.requires_grad


def test_a_new_classifier_fits_other_classes_and_pools() -> None:
    vit, image = ours(head_bias=True), torch.rand(2, 3, 16, 16)
    vit.reset_classifier(3, "avg")
    assert vit(image).shape == (2, 3)
    torch.testing.assert_close(vit.pool(vit.forward_features(image)), vit.forward_features(image)[:, 1:].mean(1))
    vit.reset_classifier(0)
    assert vit(image).shape == (2, 24)
    with pytest.raises(ConfigError, match="attention pooling has weights"):
        vit.reset_classifier(3, "map")
    with pytest.raises(ConfigError, match="needs a class token"):
        ours(class_token=False, pool="avg").reset_classifier(3, "token")
    with pytest.raises(ConfigError, match="needs a class token; use 'avg' or 'map'"):
        ours(class_token=False)


def test_named_sizes_have_the_published_parameters() -> None:
    # timm's vit_{tiny,small,base}_patch16_224
    with torch.device("meta"):
        for name, published in (("tiny/16", 5_717_416), ("small/16", 22_050_664), ("base/16", 86_567_656)):
            assert sum(p.numel() for p in create_vit(name).parameters()) == published
        mine, reference = create_vit("dinov2-giant/14"), timm.create_model("vit_giant_patch14_dinov2")
    assert {n: p.shape for n, p in mine.state_dict().items()} == {n: p.shape for n, p in reference.state_dict().items()}


def test_small_ones_take_small_images_and_names_that_do_not_exist_get_a_hint() -> None:
    for size, (side, channels) in product(("nano", "mini"), ((28, 1), (32, 3))):
        vit = create_vit(f"{size}/4", image_size=side, channels=channels, num_classes=10)
        assert vit.grid == (side // 4, side // 4) and vit.dim == SIZES[size].dim
        assert vit(torch.rand(2, channels, side, side)).shape == (2, 10)
    hints = {"smal/16": "no such size.*Did you mean 'small'", "dino-small/14": "no such family", "small": "size/patch"}
    for name, hint in hints.items():
        with pytest.raises(ConfigError, match=hint):
            create_vit(name)


def test_a_tiny_vit_learns() -> None:
    # Two classes, left or right half bright: linear in the pixels, so 30 steps suffice.
    torch.manual_seed(0)
    vit = create_vit("nano/4", image_size=8, channels=1, num_classes=2)
    labels = torch.arange(64) % 2
    images = torch.rand(64, 1, 8, 8) * 0.1
    for image, label in zip(images, labels, strict=True):
        image[..., 4 * int(label) : 4 * int(label) + 4] += 1
    optimizer = torch.optim.AdamW(vit.parameters(), lr=3e-3)
    for _ in range(30):
        loss = nn.functional.cross_entropy(vit(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (vit(images).argmax(1) == labels).all()
