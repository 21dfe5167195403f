"""Softmax attention by the kernel that is fast where it runs. b images, h heads, n tokens, c channels of a head.

torch's fused kernel is the right one nearly everywhere. On a CPU that multiplies in bfloat16 without matrix tiles
(AVX512 without AMX: AMD's Zen 4 and 5, Intel's Cooper Lake) it falls to a third of what matrix products reach there, so
for these the scores are made slab by slab: some rows of askers against all tokens, as one large product. Neither ever
holds an n x n map.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

SLAB = 2**20  # scores held at a time: 2 MB of bfloat16, which two cores of Zen 4 keep in their second-level caches
SLAB_BACKWARD = 2**22  # there each slab also adds to sums over all tokens, so fewer are better
FEWEST = 32  # rows of a slab, or its products turn thin


def attend(
    q: Float[Tensor, "b h q c"],
    k: Float[Tensor, "b h n c"],
    v: Float[Tensor, "b h n c"],
    *,
    mask: Bool[Tensor, "b _ q n"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h q c"]:
    """softmax(q k^T / sqrt(c)) v.

    Args:
        mask: which tokens each asker may ask; None for all.
        dropout: rate at which weights are dropped.
    """
    if mask is None and not dropout and slabs_pay(q):
        return slab_attention(q, k, v)  # type: ignore[no-any-return]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


def slabs_pay(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and not torch.cpu._is_amx_tile_supported()


# One operator of our own, so that torch.compile sees a call and not a loop to unroll in each of 12 blocks.
@torch.library.custom_op("densevit::slab_attention", mutates_args=())
def slab_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scaled, keys, values = q * q.shape[-1] ** -0.5, k.mT.contiguous(), v.contiguous()
    # Laid out as b q h c, which is how the heads are put side by side again.
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
    """The weights are made anew, slab by slab (Dao et al. 2022); sums over slabs are kept in fp32."""
    scale = q.shape[-1] ** -0.5
    scaled, grad, k, keys, values = q * scale, grad.contiguous(), k.contiguous(), k.mT.contiguous(), v.mT.contiguous()
    drift = (grad.float() * out.float()).sum(-1, keepdim=True).to(q.dtype)  # what softmax takes off every score
    d_q = torch.empty_like(scaled)
    d_k, d_v = torch.zeros_like(k, dtype=torch.float32), torch.zeros_like(v, dtype=torch.float32)
    for start, stop in slabs(q, k, SLAB_BACKWARD):
        askers, coming = scaled[:, :, start:stop], grad[:, :, start:stop]
        weights = (askers @ keys).softmax(-1)
        d_scores = (coming @ values).sub_(drift[:, :, start:stop]).mul_(weights)
        d_q[:, :, start:stop] = d_scores @ k
        d_k += d_scores.mT @ askers
        d_v += weights.mT @ coming
    return d_q.mul_(scale), d_k.to(k.dtype), d_v.to(v.dtype)


@slab_attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def slabs(q: Tensor, k: Tensor, scores: int) -> list[tuple[int, int]]:
    """First row and end of each slab of about so many scores."""
    rows = max(FEWEST, scores // (q.shape[0] * q.shape[1] * k.shape[2]))
    return [(start, min(start + rows, q.shape[2])) for start in range(0, q.shape[2], rows)]


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return slab_attention_backward(grad, *ctx.saved_tensors)  # type: ignore[attr-defined, no-any-return]


slab_attention.register_autograd(_backward, setup_context=_keep)
