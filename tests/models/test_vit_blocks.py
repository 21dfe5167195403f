"""Parts of a ViT against hand calculation and torch's own."""

from typing import Any

import pytest
import timm
import torch

from densevit.errors import ConfigError, DensevitError
from densevit.models.layers import DropPath
from densevit.models.vit.block import Attention, Block
from densevit.models.vit.embeddings import ConvStem, PatchEmbed
from densevit.models.vit.vision_transformer import VisionTransformer


@pytest.mark.parametrize("stem", [PatchEmbed, ConvStem])
def test_sizes_that_are_no_multiple_are_refused(stem: Any) -> None:
    with pytest.raises(DensevitError, match="30x28; this ViT needs multiples of 8: resize or pad it to 32x32"):
        stem(4, 8)(torch.rand(1, 3, 30, 28))


def test_a_convolutional_stem_halves_what_channels_there_are() -> None:
    assert ConvStem(32, 8, channels=1)(torch.rand(2, 1, 24, 40)).shape == (2, 32, 3, 5)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_attention_equals_the_softmax_written_out(qk_norm: bool) -> None:
    attention, x = Attention(8, 2, qk_norm=qk_norm), torch.randn(1, 5, 8)
    q, k, v = (t.reshape(5, 2, 4).transpose(0, 1) for t in attention.qkv(x)[0].chunk(3, dim=-1))
    q, k = attention.q_norm(q), attention.k_norm(k)
    weights = ((q @ k.transpose(1, 2)) / 2).softmax(-1)  # sqrt of 4 channels per head
    mixed = (weights @ v).transpose(0, 1).reshape(5, 8)
    torch.testing.assert_close(attention(x)[0], attention.proj(mixed))
    torch.testing.assert_close(attention.weights(x)[0], weights)


def test_attention_dropout_drops_in_training_alone_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    attention, x = Attention(8, 2, attn_drop=0.5), torch.randn(1, 6, 8)
    whole = attention.eval()(x)
    torch.testing.assert_close(attention(x), whole)
    drops = torch.stack([attention.train()(x) for _ in range(1000)])
    assert drops.std(0).min() > 0.01
    # the mean's standard error is drops.std / sqrt(1000); five of them
    assert ((drops.mean(0) - whole).abs() < 5 * drops.std(0) / 1000**0.5).all()


def test_projection_dropout_reaches_attention_and_mlp() -> None:
    block, x = Block(8, 2, proj_drop=0.9), torch.randn(1, 3, 8)
    assert not torch.equal(block.attn(x), block.attn(x))
    assert not torch.equal(block.mlp(x), block.mlp(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_stochastic_depth_grows_linearly() -> None:
    vit = VisionTransformer(16, 3, 2, 4, drop_path=0.2)
    assert [getattr(block.drop_path, "drop_prob", 0) for block in vit.blocks] == [0, 0.1, 0.2]


def test_stochastic_depth_drops_what_timms_drops() -> None:
    dropped = []
    for layer in (DropPath(0.4), timm.layers.DropPath(0.4)):
        torch.manual_seed(0)
        dropped.append(layer(torch.ones(50, 2, 3)))
        assert torch.equal(layer.eval()(dropped[-1]), dropped[-1])
    assert torch.equal(*dropped) and 0 < (dropped[0] == 0).float().mean() < 1


def test_position_dropout_zeroes_numbers_of_embedded_tokens() -> None:
    vit = VisionTransformer(16, 1, 2, 4, grid=(2, 2), positions="random", pos_drop=0.5)
    assert 0.2 < (vit.embed(torch.rand(4, 3, 8, 8)) == 0).float().mean() < 0.8
    assert (vit.eval().embed(torch.rand(4, 3, 8, 8)) == 0).float().mean() < 0.01


def test_a_stem_of_patches_that_are_no_power_of_two_is_refused() -> None:
    with pytest.raises(ConfigError, match="power of two, not 12"):
        ConvStem(8, 12)
