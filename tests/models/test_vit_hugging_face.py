"""Beside Hugging Face's own code, where it is installed: CLIP's image tower, ViT and DINOv2, as they write files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from densevit.models.vit.checkpoint_filter import load
from densevit.models.vit.classifier import ViTClassifier
from densevit.weights.readers import read_tensors

transformers = pytest.importorskip("transformers")

SIZE: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": 8}
CLIP: dict[str, Any] = {"norm_pre": True, "mlp": "quick_gelu", "eps": 1e-5, "head_bias": False, "num_classes": 10}
DINO: dict[str, Any] = {"layer_scale": 1.0, "pos_embed_interpolation": "bicubic", "num_classes": 0}


def reference(kind: str) -> tuple[Any, dict[str, Any]]:
    size = {**SIZE, "image_size": 32}
    if kind == "clip":
        config = transformers.CLIPVisionConfig(**size, intermediate_size=192, projection_dim=10)
        return transformers.CLIPVisionModelWithProjection(config), CLIP
    if kind == "vit":
        config = transformers.ViTConfig(**size, intermediate_size=192, num_labels=10)
        return transformers.ViTForImageClassification(config), {"num_classes": 10, "eps": 1e-12}
    if kind == "registers":
        config = transformers.Dinov2WithRegistersConfig(**size)
        options = {**DINO, "registers": 4, "no_embed_class": True, "pos_embed_interpolation": "antialias"}
        return transformers.Dinov2WithRegistersModel(config), options
    gated = kind == "dinov2-swiglu"
    options = {**DINO, "mlp": "swiglu_packed", "mlp_ratio": 2 * 2.66667} if gated else DINO
    return transformers.Dinov2Model(transformers.Dinov2Config(**size, use_swiglu_ffn=gated)), options


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("kind", ["clip", "vit", "dinov2", "dinov2-swiglu", "registers"])
def test_files_of_hugging_face_give_the_same_tokens_answers_and_gradients(tmp_path: Path, kind: str) -> None:
    theirs, options = reference(kind)
    theirs.eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    theirs.save_pretrained(tmp_path)
    vit = ViTClassifier(48, 3, 3, 8, grid=(4, 4), **options).eval()
    load(vit, read_tensors(tmp_path / "model.safetensors"), kind)
    size = (24, 48) if kind.startswith(("dino", "registers")) else (32, 32)
    images = [torch.randn(2, 3, *size).requires_grad_()]
    images.append(images[0].detach().clone().requires_grad_())
    expected = theirs(images[0], output_hidden_states=True)
    maps = vit.forward_blocks(images[1], None, norm=False, stop_early=True)[1]
    for found, other in zip(maps, expected.hidden_states[1:], strict=True):
        torch.testing.assert_close(found, other, atol=1e-5, rtol=1e-5)
    answer = next(getattr(expected, n) for n in ("image_embeds", "logits", "pooler_output") if hasattr(expected, n))
    torch.testing.assert_close(vit(images[1]), answer, atol=1e-5, rtol=1e-5)
    answer.square().sum().backward()
    vit(images[1]).square().sum().backward()
    scale = float(images[0].grad.abs().max())
    torch.testing.assert_close(images[1].grad, images[0].grad, atol=1e-5 * scale, rtol=1e-4)
