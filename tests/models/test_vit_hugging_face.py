"""Beside Hugging Face's own code, where it is installed: CLIP's image tower, ViT and DINOv2, as they write files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from densevit.models.encoders.vit import ViTEncoder
from densevit.weights.readers import read_tensors

transformers = pytest.importorskip("transformers")

SIZE: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": 8}
CLIP: dict[str, Any] = {"norm_pre": True, "mlp": "quick_gelu", "eps": 1e-5}
DINO: dict[str, Any] = {"layer_scale": 1.0, "pos_embed_interpolation": "bicubic"}


def reference(kind: str) -> tuple[Any, dict[str, Any]]:
    size = {**SIZE, "image_size": 32}
    if kind == "clip":
        config = transformers.CLIPVisionConfig(**size, intermediate_size=192, projection_dim=10)
        return transformers.CLIPVisionModelWithProjection(config), CLIP
    if kind == "vit":
        config = transformers.ViTConfig(**size, intermediate_size=192, num_labels=10)
        return transformers.ViTForImageClassification(config), {"eps": 1e-12}
    if kind == "registers":
        config = transformers.Dinov2WithRegistersConfig(**size)
        options = {**DINO, "registers": 4, "no_embed_class": True, "pos_embed_interpolation": "antialias"}
        return transformers.Dinov2WithRegistersModel(config), options
    gated = kind == "dinov2-swiglu"
    options = {**DINO, "mlp": "swiglu_packed", "mlp_ratio": 2 * 2.66667} if gated else DINO
    return transformers.Dinov2Model(transformers.Dinov2Config(**size, use_swiglu_ffn=gated)), options


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("kind", ["clip", "vit", "dinov2", "dinov2-swiglu", "registers"])
def test_files_of_hugging_face_give_the_same_tokens_and_gradients(tmp_path: Path, kind: str) -> None:
    theirs, options = reference(kind)
    theirs.eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    theirs.save_pretrained(tmp_path)
    encoder = ViTEncoder(dim=48, depth=3, heads=3, patch_size=8, image_size=32, **options).eval()
    encoder.load_weights(read_tensors(tmp_path / "model.safetensors"), kind)
    vit = encoder.vit
    size = (24, 48) if kind.startswith(("dino", "registers")) else (32, 32)
    images = [torch.randn(2, 3, *size).requires_grad_()]
    images.append(images[0].detach().clone().requires_grad_())
    expected = theirs(images[0], output_hidden_states=True)
    outputs = vit.block_outputs(images[1], range(3))
    for found, other in zip(outputs, expected.hidden_states[1:], strict=True):
        torch.testing.assert_close(torch.cat([found.prefix, found.patches], dim=1), other, atol=1e-5, rtol=1e-5)
    norm = theirs.get_submodule({"clip": "vision_model.post_layernorm", "vit": "vit.layernorm"}.get(kind, "layernorm"))
    tokens = norm(expected.hidden_states[-1])
    torch.testing.assert_close(vit(images[1]), tokens, atol=1e-5, rtol=1e-5)
    tokens.square().sum().backward()
    vit(images[1]).square().sum().backward()
    scale = float(images[0].grad.abs().max())
    torch.testing.assert_close(images[1].grad, images[0].grad, atol=1e-5 * scale, rtol=1e-4)
