"""Parts of a ViT, attention by slabs, and what published DINO heads ask of it: by hand and against torch's own."""

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_models import toy_features, toy_specs

from densevit.errors import ConfigError, DensevitError
from densevit.models.decoders.base import DecoderOutput
from densevit.models.decoders.dpt import DPT
from densevit.models.heads.bins import BinsHead
from densevit.models.heads.sky import SkyDepthHead, fill_sky
from densevit.models.layers import DropPath
from densevit.models.vit import block
from densevit.models.vit.block import Attention, Block, attend, slab_attention, slab_attention_backward, slabs
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


@pytest.fixture
def vit() -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(24, 4, 3, 8, grid=(4, 4), registers=2, layer_scale=0.1).eval()


IMAGE = torch.linspace(-1, 1, 3 * 32 * 32).view(1, 3, 32, 32)


def test_no_block_after_the_last_that_is_asked_for_runs(vit: Any) -> None:
    ran = []
    for index, one in enumerate(vit.blocks):
        one.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
    (output,) = vit.block_outputs(IMAGE, [1])
    assert ran == [0, 1]
    expected = vit.blocks[1](vit.blocks[0](vit.embed(IMAGE)))
    torch.testing.assert_close(torch.cat([output.prefix, output.patches], dim=1), expected)


SPECS = toy_specs(4)


def test_doubling_fusions_end_at_sixteen_times_the_deepest_level() -> None:
    # A strided 3x3 makes 2x3 of 3x5; four doublings make 32x48. Fusions by level end at eight times the grid, 24x40.
    given = toy_features(4, grid=(3, 5))
    assert DPT(SPECS, 1, channels=8, fusion_size="double")(given).shape[-2:] == (32, 48)
    assert DPT(SPECS, 1, channels=8)(given).shape[-2:] == (24, 40)


def test_doubling_changes_nothing_while_the_grid_is_even() -> None:
    torch.manual_seed(0)
    one, other = DPT(SPECS, 1, channels=8), DPT(SPECS, 1, channels=8, fusion_size="double")
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(toy_features(4, grid=(4, 6))), other(toy_features(4, grid=(4, 6))))
    assert one(toy_features(4, grid=(4, 5))).shape != other(toy_features(4, grid=(4, 5))).shape


def test_bins_without_metres_claim_none() -> None:
    output = BinsHead(3, kind="affine").output
    assert (output.kind, output.unit, output.range) == ("affine", "", None)


def test_sky_lies_at_the_99th_percentile_of_the_ground() -> None:
    # Ground 0 to 100 in 101 steps: its 99th percentile is 99.
    depth = torch.cat([torch.arange(101.0), torch.full((11,), 5.0)])[None, None, None]
    sky = torch.arange(112)[None, None, None] > 100
    found = fill_sky(depth, ~sky)
    assert torch.equal(found[~sky], depth[~sky])
    assert found[sky].tolist() == pytest.approx([99.0] * 11)


@pytest.mark.parametrize("few", [0, 10])
def test_hardly_any_sky_or_ground_is_taken_for_none(few: int) -> None:
    depth, mask = torch.rand(1, 1, 8, 8), torch.zeros(64, dtype=torch.bool)
    mask[:few] = True
    assert torch.equal(fill_sky(depth, mask.view(1, 1, 8, 8)), depth)
    assert torch.equal(fill_sky(depth, ~mask.view(1, 1, 8, 8)), depth)


def test_the_sky_is_an_extra_in_training_and_fills_nothing_there() -> None:
    torch.manual_seed(0)
    head, x = SkyDepthHead(8, hidden=4), torch.randn(1, 8, 4, 4)
    nn.init.constant_(head.sky[-1].bias, 0.3)  # type: ignore[index]
    answer = head.train()(x, (8, 8))
    assert isinstance(answer, DecoderOutput)
    seen: Tensor = head.eval()(x, (8, 8))  # type: ignore[assignment]
    assert answer.extras["sky"].shape == answer.map.shape
    ground = answer.extras["sky"] < 0.3
    assert 10 < int(ground.sum()) < 54
    assert torch.equal(seen[ground], answer.map[ground]) and not torch.equal(seen, answer.map)


def test_a_focal_length_makes_depth_metric() -> None:
    assert (SkyDepthHead(8).output.kind, SkyDepthHead(8).output.focal) == ("affine", None)
    assert (SkyDepthHead(8, focal=300.0).output.kind, SkyDepthHead(8, focal=300.0).output.focal) == ("metric", 300.0)


def made(b: int, h: int, n: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values as they come out of one linear layer: views, not contiguous."""
    torch.manual_seed(0)
    return list(torch.randn(b, n, 3, h, 16, dtype=dtype).requires_grad_().permute(2, 0, 3, 1, 4).unbind(0))


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return torch.autograd.grad((out * torch.randn_like(out)).sum(), inputs)


@pytest.mark.parametrize("slab", [2**21, 1])  # one slab for all; slabs of 32 rows with a short last one
def test_slabs_are_torch_attention_in_double_precision(slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "SLAB", slab)
    monkeypatch.setattr(block, "SLAB_BACKWARD", slab)
    inputs = made(2, 3, 70, torch.float64)
    ours, theirs = slab_attention(*inputs), F.scaled_dot_product_attention(*inputs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    # Sums over slabs are kept in fp32, which is exact enough for the bfloat16 that this is for.
    for a, b in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_in_bfloat16_slabs_err_no_more_than_twice_torchs_kernel() -> None:
    exact = made(1, 2, 200, torch.float32)
    rounded = [x.detach().bfloat16().requires_grad_() for x in exact]
    truth = gradients(F.scaled_dot_product_attention(*exact), exact)

    def error(kernel: object) -> float:
        found = gradients(kernel(*rounded), rounded)  # type: ignore[operator]
        return sum(float((a.float() - b).norm() / b.norm()) for a, b in zip(found, truth, strict=True))

    assert error(slab_attention) < 2 * error(F.scaled_dot_product_attention)


def test_the_operator_keeps_torchs_rules() -> None:
    # Shapes without numbers, registered gradients and no hidden mutation, by torch's own examiner.
    inputs = tuple(torch.randn(1, 2, 40, 16, requires_grad=True) for _ in range(3))
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(slab_attention, inputs, test_utils=rules)


def test_the_gradients_lie_in_memory_as_torch_compile_is_told() -> None:
    # As in a ViT: queries, keys and values are slices of one product, and the output's heads lie beside each other.
    q, k, v = torch.randn(2, 40, 3, 2, 16).permute(2, 0, 3, 1, 4)
    out = slab_attention(q, k, v)
    torch.library.opcheck(slab_attention_backward, (torch.randn_like(out), q, k, v, out), test_utils="test_faketensor")


def test_slabs_cover_every_row_once_and_shrink_as_tokens_grow() -> None:
    few, many = torch.empty(1, 6, 1370, 64), torch.empty(1, 6, 20_000, 64)
    for q in (few, many):
        rows = [row for start, stop in slabs(q, q, 2**21) for row in range(start, stop)]
        assert rows == list(range(q.shape[2]))
    assert slabs(few, few, 2**21)[0] == (0, 255)  # 2^21 / (6 * 1370)
    assert slabs(many, many, 2**21)[0] == (0, block.MIN_ROWS)


def test_masks_and_other_number_formats_go_to_torchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "slab_attention", None)  # a call would raise
    monkeypatch.setattr(block, "MATRIX_TILES", False)
    q = torch.randn(1, 2, 5, 8)
    mask = torch.eye(5, dtype=torch.bool)[None, None]
    assert torch.equal(attend(q, q, q), F.scaled_dot_product_attention(q, q, q))
    # Who may only ask himself takes his own value.
    torch.testing.assert_close(attend(q.bfloat16(), q.bfloat16(), q.bfloat16(), mask=mask), q.bfloat16())
    monkeypatch.setattr(block, "MATRIX_TILES", True)
    assert attend(q.bfloat16(), q.bfloat16(), q.bfloat16()).shape == q.shape
