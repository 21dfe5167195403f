"""Segmenter's decoder against itself written out, and the head of decoders that give a map per class."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS
from densevit.models.decoders.mask_transformer import MaskTransformer
from densevit.models.heads.segmentation import MasksHead
from densevit.structures import EncoderOutput, FeatureSpec


def features(*maps: Tensor) -> EncoderOutput:
    return EncoderOutput(maps, tuple(x.new_zeros(len(x), 1, x.shape[1]) for x in maps), (48, 80))


def build(**options: Any) -> MaskTransformer:
    torch.manual_seed(0)
    decoder = MaskTransformer([FeatureSpec(32, 16)], 1, classes=5, heads=4, **options).eval()
    with torch.no_grad():  # gains of 1 and biases of 0 would hide faults
        for parameter in decoder.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return decoder


def test_it_is_what_the_paper_says_written_out() -> None:
    decoder, x = build(layers=1), torch.randn(2, 32, 3, 5)
    (block,) = decoder.blocks
    tokens = x.flatten(2).transpose(1, 2) @ decoder.proj_dec.weight.T + decoder.proj_dec.bias
    z = torch.cat([tokens, decoder.cls_emb.expand(2, -1, -1)], 1)
    y = F.layer_norm(z, (32,), block.norm1.weight, block.norm1.bias, 1e-5)  # torch's eps, as Segmenter's decoder
    mixed = []
    for image in y @ block.attn.qkv.weight.T + block.attn.qkv.bias:
        heads = []
        for h in range(4):
            q, k, v = (image[:, i * 32 + h * 8 : i * 32 + h * 8 + 8] for i in range(3))
            heads.append((q @ k.T / 8**0.5).softmax(-1) @ v)
        mixed.append(torch.cat(heads, -1))
    z = z + block.attn.proj(torch.stack(mixed))
    z = z + block.mlp(F.layer_norm(z, (32,), block.norm2.weight, block.norm2.bias, 1e-5))
    z = decoder.decoder_norm(z)
    patches, classes = z[:, :15] @ decoder.proj_patch, z[:, 15:] @ decoder.proj_classes
    cosine = F.cosine_similarity(patches[:, :, None], classes[:, None], dim=-1)  # of each patch and class
    expected = decoder.mask_norm(cosine).transpose(1, 2).reshape(2, 5, 3, 5)
    torch.testing.assert_close(decoder(features(x)), expected, atol=1e-5, rtol=1e-4)


def test_by_itself_it_is_as_wide_as_the_encoder_with_a_head_per_64_channels() -> None:
    decoder = MaskTransformer([FeatureSpec(128, 16)], 1, classes=5)
    assert len(decoder.blocks) == 2  # Segmenter's config: 2 layers, dropout 0.1
    assert decoder.blocks[0].attn.heads == 2
    assert decoder.blocks[0].attn.attn_drop.p == 0.1
    assert decoder.output == FeatureSpec(5, 16)
    narrow = MaskTransformer([FeatureSpec(128, 16), FeatureSpec(128, 16)], 1, classes=5, channels=64)
    maps = (torch.randn(1, 128, 3, 5), torch.randn(1, 128, 3, 5))
    assert narrow(features(*maps)).shape == (1, 5, 3, 5)
    assert narrow.proj_dec.in_features == 256


def test_the_head_only_upsamples() -> None:
    head = MasksHead(2, classes=("sky", "road"))
    x = torch.randn(1, 2, 3, 5, dtype=torch.bfloat16)
    expected = F.interpolate(x.float(), (48, 80), mode="bilinear")
    torch.testing.assert_close(head(x, (48, 80)), expected)
    assert not list(head.parameters())
    assert head.output.kind == "labels"
    assert head.output.classes == ("sky", "road")
    same = torch.randn(1, 2, 48, 80)
    assert torch.equal(head(same, (48, 80)), same)


def test_it_says_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="3 classes, but the decoder gives 2 maps"):
        MasksHead(2, classes=3)
    with pytest.raises(ConfigError, match="missing, and the data set names none"):
        DECODERS.check({"type": "mask_transformer"}, "decoder").build([FeatureSpec(32, 16)], 1)
    with pytest.raises(ConfigError, match="heads"):
        MaskTransformer([FeatureSpec(32, 16)], 1, classes=5, heads=5)
