"""Softmax attention by the fastest kernel of the device. b images, h heads, q queries, n tokens, c channels of a head.

torch's fused kernel is the fastest nearly everywhere. On a CPU that multiplies in bfloat16 without matrix tiles (AVX512
without AMX: AMD's Zen 4 and 5, Intel's Cooper Lake) it reaches a third of the speed of matrix products, so there the
scores are computed in slabs: some queries against all tokens, as one large product. Neither ever holds an n x n map.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

SLAB = 2**20  # scores at a time: 2 MB of bfloat16, which fit into the second-level caches of two cores of Zen 4
SLAB_BACKWARD = 2**22  # each slab also adds to sums over all tokens there, so fewer slabs are faster
MIN_ROWS = 32  # queries of a slab; products of fewer are slow
MATRIX_TILES = torch.cpu._is_amx_tile_supported()  # a call that torch.compile would break a graph for


def attend(
    q: Float[Tensor, "b h q c"],
    k: Float[Tensor, "b h n c"],
    v: Float[Tensor, "b h n c"],
    *,
    mask: Bool[Tensor, "b _ q n"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h q c"]:
    """Return softmax(q k^T / sqrt(c)) v. `mask`: True where a query attends to a token; None for all; `dropout`:
    probability that a weight is dropped."""
    if mask is None and not dropout and use_slabs(q):
        return slab_attention(q, k, v)  # type: ignore[no-any-return]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


def use_slabs(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and not MATRIX_TILES


# A custom operator, so that torch.compile sees one call and not a loop to unroll in each of 12 blocks.
@torch.library.custom_op("densevit::slab_attention", mutates_args=())
def slab_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scaled, keys, values = q * q.shape[-1] ** -0.5, k.mT.contiguous(), v.contiguous()
    # In memory b q h c, so that joining the heads afterwards copies nothing.
    out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
    for start, stop in slabs(q, k, SLAB):
        out[:, :, start:stop] = (scaled[:, :, start:stop] @ keys).softmax(-1) @ values
    return out


@slab_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)


@torch.library.custom_op("densevit::slab_attention_backward", mutates_args=())
def slab_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Recompute the weights slab by slab (Dao et al. 2022); sums over slabs are kept in fp32."""
    scale = q.shape[-1] ** -0.5
    scaled, grad, k, keys, values = q * scale, grad.contiguous(), k.contiguous(), k.mT.contiguous(), v.mT.contiguous()
    correction = (grad.float() * out.float()).sum(-1, keepdim=True).to(q.dtype)  # of the softmax gradient
    d_q = q.new_empty(q.shape)  # all three contiguous, as torch.compile is told below
    d_k, d_v = k.new_zeros(k.shape, dtype=torch.float32), v.new_zeros(v.shape, dtype=torch.float32)
    for start, stop in slabs(q, k, SLAB_BACKWARD):
        queries, d_out = scaled[:, :, start:stop], grad[:, :, start:stop]
        weights = (queries @ keys).softmax(-1)
        d_scores = (d_out @ values).sub_(correction[:, :, start:stop]).mul_(weights)
        d_q[:, :, start:stop] = d_scores @ k
        d_k += d_scores.mT @ queries
        d_v += weights.mT @ d_out
    return d_q.mul_(scale), d_k.to(k.dtype), d_v.to(v.dtype)


@slab_attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def slabs(q: Tensor, k: Tensor, scores: int) -> list[tuple[int, int]]:
    """Return the first row and end of each slab of about so many scores."""
    rows = max(MIN_ROWS, scores // (q.shape[0] * q.shape[1] * k.shape[2]))
    return [(start, min(start + rows, q.shape[2])) for start in range(0, q.shape[2], rows)]


def _save_for_backward(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return slab_attention_backward(grad, *ctx.saved_tensors)  # type: ignore[attr-defined, no-any-return]


slab_attention.register_autograd(_backward, setup_context=_save_for_backward)
