"""Attention by slabs gives what torch's kernel gives, values and gradients, and holds no n x n map."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from densevit.models.vit import block
from densevit.models.vit.block import attend, slab_attention, slab_attention_backward, slabs


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
