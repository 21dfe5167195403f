"""Attention made visible, against softmax and matrix products by hand."""

import pytest
import torch
from torch import Tensor, nn

from densevit.models.vit.attention_rollout import rollout
from densevit.models.vit.vision_transformer import VisionTransformer


def model(**options: object) -> VisionTransformer:
    torch.manual_seed(0)
    vit = VisionTransformer(16, 3, 2, 4, grid=(2, 3), **options).eval()  # type: ignore[arg-type]
    for parameter in vit.parameters():
        nn.init.normal_(parameter, std=0.5)
    return vit


def by_hand(vit: VisionTransformer, image: Tensor) -> list[Tensor]:
    """b heads n n of each block, from its weights alone."""
    x, maps = vit.embed(image), []
    for block in vit.blocks:
        weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
        y = nn.functional.layer_norm(x, (16,), block.norm1.weight, block.norm1.bias, 1e-6) @ weight.T + bias
        q, k = y[..., :16], y[..., 16:32]
        heads = [q[..., i : i + 8] @ k[..., i : i + 8].transpose(1, 2) / 8**0.5 for i in (0, 8)]
        maps.append(torch.stack([h.exp() / h.exp().sum(-1, keepdim=True) for h in heads], dim=1))
        x = block(x)
    return maps


@pytest.mark.parametrize("registers", [0, 2])
@torch.no_grad()
def test_weights_are_the_softmax_by_hand_and_rows_sum_to_one(registers: int) -> None:
    vit, image = model(registers=registers), torch.randn(2, 3, 8, 12)
    before, maps = vit(image), list(vit.attention(image))
    for found, expected in zip(maps, by_hand(vit, image), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
    assert torch.equal(vit(image), before)


@torch.no_grad()
def test_weights_are_those_that_the_block_mixes_with() -> None:
    vit, image = model(), torch.randn(1, 3, 8, 12)
    attn, x = vit.blocks[0].attn, vit.blocks[0].norm1(vit.embed(image))
    weights = next(vit.attention(image))
    v = attn.project(x)[2]
    torch.testing.assert_close(attn.proj((weights @ v).transpose(1, 2).flatten(2)), attn(x), atol=1e-5, rtol=1e-5)


def test_rollout_is_the_product_of_mixed_layers_whose_rows_sum_to_one() -> None:
    torch.manual_seed(0)
    layers = [torch.rand(2, 4, 5, 5).softmax(-1) for _ in range(3)]
    a, b, c = ((layer.mean(1) + torch.eye(5)) / 2 for layer in layers)
    torch.testing.assert_close(rollout(iter(layers)), c @ b @ a)
    torch.testing.assert_close(rollout(layers).sum(-1), torch.ones(2, 5))
    assert torch.equal(rollout([torch.eye(4).view(1, 1, 4, 4)] * 5)[0], torch.eye(4))


@torch.no_grad()
def test_layers_come_one_by_one() -> None:
    vit, image = model(), torch.rand(1, 3, 8, 12)
    walk = vit.attention(image)
    ran: list[int] = []
    vit.blocks[1].register_forward_pre_hook(lambda *_: ran.append(1))
    next(walk)
    assert not ran  # nothing beyond the layer taken
