"""Low-rank updates reach every encoder, change nothing at first, and can be merged."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from small import small_config
from torch import Tensor, nn

import densevit
from densevit.builder.plan import load_plan
from densevit.config import parser
from densevit.errors import ConfigError
from densevit.models.encoders.base import ENCODERS, Encoder
from densevit.models.lora import Lora, LoraLinear, add_lora
from densevit.ops.matrices import merge_lora
from densevit.weights.lora import is_update, merge

SMALL = {"type": "vit", "dim": 32, "depth": 2, "heads": 2, "image_size": 64}
SLIM = {"embed_dim": 64, "num_heads": 2, "depth": 2}
NARROW = {"embed_dim": 32, "depths": [2, 1, 1, 1], "num_heads": [1, 2, 4, 8]}
SWIN = {"type": "swin", "image_size": 64, "out_indices": [0], "arguments": NARROW}
# Encoder, and the number of its layers with updates; timm reads past the qkv layers of BEiT, EVA and Swin V2.
ENCODERS_AND_LAYERS: list[tuple[dict[str, Any], int]] = [
    (SMALL | {"layer_scale": 1.0}, 8),
    (SMALL | {"mlp": "swiglu"}, 10),
    ({"type": "timm", "name": "vit_tiny_patch16_224", "arguments": SLIM}, 8),
    ({"type": "timm", "name": "vit_small_patch16_dinov3", "arguments": SLIM}, 8),
    ({"type": "timm", "name": "beit_base_patch16_224", "arguments": SLIM}, 8),
    ({"type": "timm", "name": "eva02_tiny_patch14_224", "arguments": SLIM}, 8),
    (SWIN | {"name": "swin_tiny_patch4_window7_224"}, 8),
    (SWIN | {"name": "swinv2_tiny_window8_256"}, 8),
]


def build(spec: dict[str, Any]) -> Encoder:
    """With every gain at 1: layer scales of 1e-5 and norms of 0 would hide what the layers do."""
    torch.manual_seed(0)
    encoder = ENCODERS.check(spec, "encoder").build().eval()
    for name, parameter in encoder.named_parameters():
        if "gamma" in name or "norm" in name.rpartition(".")[0]:
            nn.init.constant_(parameter, 1.0 if name.endswith(("weight", "gamma_1", "gamma_2", "gamma")) else 0.0)
    return encoder


def last(encoder: Encoder) -> Tensor:
    return encoder(torch.linspace(0, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)).maps[-1]


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize(("spec", "layers"), ENCODERS_AND_LAYERS, ids=str)
def test_updates_reach_every_layer_and_merge_exactly(spec: dict[str, Any], layers: int, dora: bool) -> None:
    encoder = build(spec)
    before = last(encoder)
    options = Lora(rank=4, alpha=8, dora=dora)
    add_lora(encoder, options)
    changed = [module for module in encoder.modules() if isinstance(module, LoraLinear)]
    assert len(changed) == layers
    assert torch.allclose(last(encoder), before, atol=2e-6)  # exact, but for biases that are added apart
    for module in changed:
        nn.init.normal_(module.lora_b, std=0.05)
        if module.lora_magnitude is not None:
            module.lora_magnitude.data *= 1.1
    unmerged = last(encoder)
    assert (unmerged - before).abs().max() > 0.01
    unmerged.square().mean().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.requires_grad == is_update(name)
        assert not parameter.requires_grad or parameter.grad.abs().sum() > 0, name
    plain = build(spec)
    plain.load_state_dict(merge(encoder.state_dict(), asdict(options)))
    assert (last(plain) - unmerged).abs().max() < 1e-5


def test_the_update_is_the_formula_of_the_papers() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(6, 5), torch.randn(7, 6)
    layer = LoraLinear(linear, Lora(rank=2, alpha=6, dora=True))
    nn.init.normal_(layer.lora_b)
    layer.lora_magnitude.data.uniform_(0.5, 2)
    whole = linear.weight + 3 * layer.lora_b @ layer.lora_a  # alpha / rank = 3
    rows = layer.lora_magnitude[:, None] * whole / whole.norm(dim=1, keepdim=True)
    assert torch.allclose(layer(x), x @ rows.T + linear.bias, atol=1e-5)
    assert torch.allclose(merge_lora(linear.weight, layer.lora_a, layer.lora_b, 3.0, layer.lora_magnitude), rows)
    assert torch.allclose(merge_lora(linear.weight, layer.lora_a, layer.lora_b, 3.0), whole)


def test_bf16_weights_are_merged_in_fp32() -> None:
    torch.manual_seed(0)
    w, a, b = torch.randn(64, 64).bfloat16(), torch.randn(4, 64), torch.randn(64, 4)
    exact = w.double() + 0.01 * b.double() @ a.double()
    assert (merge_lora(w, a, b, 0.01) - exact).abs().max() <= (exact.bfloat16() - exact).abs().max()


def test_rank_8_trains_three_percent_of_a_vit_s() -> None:
    """peft counts 589,824 parameters for these layers of a ViT-S/14 with 21.6 M."""
    with torch.device("meta"):
        encoder: Encoder = ENCODERS.check({"type": "vit", "size": "small"}, "encoder").build()
        add_lora(encoder, Lora(rank=8))
    trained = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
    assert trained == 589_824
    assert trained <= 0.03 * sum(p.numel() for p in encoder.parameters())


def test_only_the_layers_that_are_asked_for_learn() -> None:
    encoder = build(SMALL)
    add_lora(encoder, Lora(rank=4, layers=("mlp",)))
    assert {n.split(".")[3] for n, p in encoder.named_parameters() if p.requires_grad} == {"mlp"}
    assert len([group for group in encoder.layer_groups() if any(p.requires_grad for p in group)]) == 2


@pytest.mark.parametrize(
    ("options", "words"), [(Lora(rank=64), "rank: 64, where the smallest layer has 32"), (Lora(layers=()), "no linear")]
)
def test_what_does_not_fit_is_an_error(options: Lora, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        add_lora(build(SMALL), options)


@pytest.mark.slow
def test_a_frozen_encoder_that_has_updates_can_be_planned_from_its_own_config(tmp_path: Path) -> None:
    config, words = small_config(tmp_path), ["data.val=null", "model.freeze_encoder=true"]
    densevit.train(config, **{"model.encoder.lora": {"rank": 2}, "steps": 1, "data.val": None})
    words.append(f"model.init_from={tmp_path / 'run'}")
    plan = load_plan(config, [*words, "model.encoder=null", f"output={tmp_path / 'frozen'}"]).open()
    (tmp_path / "again.yaml").write_text(parser.dump(plan.run))
    assert load_plan(tmp_path / "again.yaml").run.model == plan.run.model
    with pytest.raises(ConfigError, match="model.encoder.lora freezes the encoder itself, and trains its updates"):
        load_plan(config, [*words, "model.encoder.lora={rank: 3}"])
