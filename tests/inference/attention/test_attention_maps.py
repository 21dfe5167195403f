"""Attention is what the softmax says, for our ViT and timm's; and the sheet shows all of it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from shell import Shell
from toy_models import fp32, toy_network

from densevit.errors import ConfigError, DataError
from densevit.inference.attention import (
    AttentionMaps,
    compute_attention,
    named_maps,
    overlay,
    overlay_on,
    visit_attention_weights,
    write_attention_page,
)
from densevit.inference.predictor import Predictor
from densevit.model_card import ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.weights import checkpoint

OURS = {"type": "vit", "dim": 32, "depth": 3, "heads": 2, "image_size": 48, "out_indices": 1}
TIMM = {"type": "timm", "name": "test_vit", "arguments": {"img_size": 48}, "out_indices": 1}
SLIM = {"embed_dim": 32, "num_heads": 2, "depth": 2}
ENCODERS_SHOWN: list[dict[str, Any]] = [
    OURS,
    {**OURS, "class_token": False},
    {**OURS, "registers": 2, "channels": 1},
    TIMM,
    {"type": "timm", "name": "vit_small_patch16_dinov3", "out_indices": 1, "arguments": SLIM},
    {"type": "timm", "name": "beit_base_patch16_224", "out_indices": 1, "arguments": SLIM},
    {"type": "timm", "name": "vit_base_patch16_siglip_224", "out_indices": 1, "arguments": SLIM},
]


def model_and_card(encoder: dict[str, Any]) -> tuple[Any, ModelCard]:
    return toy_network({"depth": {"type": "metric", "hidden": 8}}, std=None, encoder=encoder)


def predictor(encoder: dict[str, Any]) -> Predictor:
    return fp32(model_and_card(encoder))


def picture(h: int = 40, w: int = 70) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (h, w, 3), dtype=np.uint8)


def name(encoder: dict[str, Any]) -> str:
    return "-".join(str(v) for k, v in encoder.items() if k in ("type", "name", "class_token", "registers"))


@pytest.mark.parametrize("encoder", ENCODERS_SHOWN, ids=name)
def test_weights_of_every_layer_are_shares(encoder: dict[str, Any]) -> None:
    seen = compute_attention(predictor(encoder), picture())
    layers, heads, gh, gw = seen.weights.shape
    assert (gh, gw) == (3, 5)  # 40 x 70 padded to 48 x 80, patches of 16
    assert layers >= 1 and heads >= 2
    assert seen.window == (4, 5, 40, 70) and seen.image.shape == (40, 70, 3)
    assert (seen.weights >= 0).all() and (seen.rollout >= 0).all()
    for total in (seen.weights.sum((2, 3)), seen.rollout.sum((1, 2))):
        assert (total <= 1 + 1e-5).all() and (total > 0.3).all()
    if seen.query == "mean patch":  # without prefix tokens nothing is left out
        np.testing.assert_allclose(seen.weights.sum((2, 3)), 1, atol=1e-5)


@pytest.mark.parametrize("kind", [OURS, TIMM], ids=name)
def test_the_first_layer_is_the_softmax_by_hand(kind: dict[str, Any]) -> None:
    p = predictor(kind)
    seen = compute_attention(p, picture(48, 48))
    encoder: Any = p.model.encoder
    vit = encoder.vit
    x = (p.to_tensor(picture(48, 48)[None]) - encoder.mean) / encoder.std
    with torch.inference_mode():
        tokens = vit.embed(x) if kind is OURS else vit.norm_pre(vit._pos_embed(vit.patch_embed(x)))
        block = vit.blocks[0]
        qkv = block.attn.qkv(block.norm1(tokens))[0]  # n 3d
        heads = seen.weights.shape[1]
        q, k, _ = qkv.unflatten(-1, (3, heads, -1)).unbind(1)  # each n heads d/heads
        for head in range(heads):
            logits = q[0, head] @ k[:, head].T / q.shape[-1] ** 0.5
            row = torch.softmax(logits, 0)[encoder.prefix_tokens :]
            np.testing.assert_allclose(seen.weights[0, head].ravel(), row.numpy(), atol=1e-5)


def test_rollout_of_two_layers_is_the_product_by_hand() -> None:
    p = predictor({**OURS, "depth": 2})
    seen = compute_attention(p, picture(48, 48))
    encoder: Any = p.model.encoder
    x = (p.to_tensor(picture(48, 48)[None]) - encoder.mean) / encoder.std
    with torch.inference_mode():
        first, second = (w[0].mean(0) for w in encoder.vit.attention(x))
    eye = torch.eye(len(first))
    flow = (0.5 * second + 0.5 * eye) @ (0.5 * first + 0.5 * eye)
    np.testing.assert_allclose(seen.rollout[1].ravel(), flow[0, 1:].numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", [OURS, {**OURS, "class_token": False}, TIMM], ids=name)
def test_the_query_may_be_the_patch_at_a_pixel(kind: dict[str, Any]) -> None:
    p = predictor(kind)
    seen = compute_attention(p, picture(40, 70), at=(60.0, 30.0))  # padded by 4 above and 5 to the left
    assert seen.query == "patch in row 2, column 4" and seen.weights.shape[-2:] == (3, 5)
    layers: list[torch.Tensor] = []
    encoder: Any = p.model.encoder
    x = torch.nn.functional.pad((p.to_tensor(picture(40, 70)[None]) - encoder.mean) / encoder.std, (5, 5, 4, 4))
    with torch.inference_mode():
        if kind is TIMM:
            visit_attention_weights(encoder.vit, x, layers.append)
        else:
            layers.extend(encoder.vit.attention(x))
    prefix = encoder.prefix_tokens
    for layer, weights in enumerate(layers):
        row = weights[0, :, prefix + 2 * 5 + 4, prefix:].reshape(-1, 3, 5)
        np.testing.assert_allclose(seen.weights[layer], row, atol=1e-5)
    with pytest.raises(DataError, match=r"pixel 70, 3 lies outside this image of 40x70"):
        compute_attention(p, picture(40, 70), at=(70, 3))


def test_the_patch_at_a_pixel_is_not_in_the_padding_below_an_image() -> None:
    p = predictor(OURS)
    p = p.with_options(card=replace(p.card, resize=PreprocessConfig(mode="padded", size=(64, 64))))
    # 20 x 80 pixels become 16 x 64: one row of patches, and three of padding.
    assert compute_attention(p, picture(20, 80), at=(79, 19)).query == "patch in row 0, column 3"


def test_looking_leaves_a_timm_model_as_it_was() -> None:
    p = predictor(TIMM)
    before = p(picture())
    fused = [block.attn.fused_attn for block in p.model.encoder.vit.blocks]  # type: ignore[union-attr]
    compute_attention(p, picture())
    assert [block.attn.fused_attn for block in p.model.encoder.vit.blocks] == fused  # type: ignore[union-attr]
    assert not any(m._forward_pre_hooks for m in p.model.modules())
    np.testing.assert_array_equal(p(picture()), before)


def test_an_encoder_of_another_kind_is_refused() -> None:
    p = predictor(OURS)
    p.model.encoder.__class__ = type("Mine", (torch.nn.Module,), dict(p.model.encoder.__class__.__dict__))
    with pytest.raises(ConfigError, match="not for a Mine"):
        compute_attention(p, picture())
    p.model.encoder = torch.nn.Identity()  # without a `vit` in it, as Swin's
    with pytest.raises(ConfigError, match="not for a Identity"):
        compute_attention(p, picture())


def example() -> AttentionMaps:
    weights = np.zeros((1, 2, 2, 2), np.float32)
    weights[0, 0, 0, 1] = 0.5  # head 0 looks at the upper right cell alone
    weights[0, 1] = 0.1
    image = np.full((24, 28, 3), 100, np.uint8)
    rollout = weights.mean(1)
    return AttentionMaps(
        image=image, query="class token", weights=weights, rollout=rollout, patch_size=16, window=(4, 2, 24, 28)
    )


def test_an_overlay_is_bright_where_the_weight_is_and_as_large_as_the_picture() -> None:
    seen = example()
    shown = overlay(seen, seen.weights[0, 0], 28).astype(int).sum(-1)
    assert shown.shape == (24, 28)
    # Columns 16 to 31 of the padded picture are 14 to 27 of the picture itself; rows 0 to 15 are 0 to 11.
    bright = shown > shown.min()
    assert bright[:12, 14:].all() and bright.sum() == 12 * 14


def test_an_overlay_on_a_photo_has_its_shape_without_what_was_padded() -> None:
    seen, photo = example(), np.full((96, 56, 3), 100, np.uint8)
    shown = overlay_on(photo, seen, seen.weights[0, 0], 96, PreprocessConfig(mode="fixed", size=(24, 28)))
    bright = shown.astype(int).sum(-1) > shown.astype(int).sum(-1).min()
    assert shown.shape == photo.shape
    assert bright[:48, 28:].all() and bright.sum() == 48 * 28
    padded = overlay_on(photo, seen, seen.weights[0, 0], 96, PreprocessConfig(mode="padded", size=(24, 28)))
    assert padded.shape == photo.shape and (padded == padded[0, 0]).all()  # the bright half is padding


def test_the_page_holds_every_map_and_fetches_nothing(tmp_path: Path) -> None:
    seen = example()
    page, *pictures = write_attention_page(tmp_path / "out", seen, title="<a model>")
    assert [path.name for path in pictures] == [
        "image.png", "layer00_mean.png", "layer00_rollout.png", "layer00_head00.png", "layer00_head01.png",
    ]  # fmt: skip
    assert all(cv2.imread(str(path)) is not None for path in pictures)
    text = page.read_text()
    assert text.count("<img ") == 1 + len(list(named_maps(seen, 0)))
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "&lt;a model&gt;" in text and "to 0.5000" in text


def test_the_command_shows_a_checkpoint(tmp_path: Path, shell: Shell) -> None:
    model, card = model_and_card(OURS)
    checkpoint.write_weights(tmp_path / "model.safetensors", model.state_dict(), card)
    cv2.imwrite(str(tmp_path / "a.png"), picture())
    words = [tmp_path / "model.safetensors", "--output", tmp_path / "out", "--attention"]
    assert "16 pictures" not in shell("inspect", *words, tmp_path / "a.png", "--device", "cpu").out
    assert len(list((tmp_path / "out").iterdir())) == 1 + 1 + 3 * (2 + 2)  # page, picture, layers x (two and the heads)
    shell("inspect", *words, tmp_path / "a.png", "--device", "cpu", "--at", "69,39")
    assert "Attention of the patch in row 2, column 4 to" in (tmp_path / "out" / "attention.html").read_text()
    shell.refused("inspect", *words, tmp_path / "gone.png")
