"""Transformer blocks: attention, MLP, norms and residuals. b images, n tokens, d channels; timm's parameter names.

`attend` computes softmax(q k^T / sqrt(c)) v in slabs of queries on CPUs whose matrix unit makes that faster.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, TypedDict

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.layers import DropPath, LayerScale, Mlp, PackedSwiGLU, QuickGELU, SwiGLU

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
        # The first call of an operator imports torch._dynamo, which takes longer than many a prediction.
        traced = torch.is_grad_enabled() or torch.compiler.is_compiling()
        return slab_attention(q, k, v) if traced else attend_in_slabs(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


def use_slabs(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and not MATRIX_TILES


def attend_in_slabs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scaled, keys, values = q * q.shape[-1] ** -0.5, k.mT.contiguous(), v.contiguous()
    # In memory b q h c, so that joining the heads afterwards copies nothing.
    out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
    for start, stop in slabs(q, k, SLAB):
        out[:, :, start:stop] = (scaled[:, :, start:stop] @ keys).softmax(-1) @ values
    return out


# A custom operator, so that torch.compile sees one call and not a loop to unroll in each of 12 blocks.
slab_attention = torch.library.custom_op("densevit::slab_attention", attend_in_slabs, mutates_args=())


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
    """Return the first row and end of each slab of about this many scores."""
    rows = max(MIN_ROWS, scores // (q.shape[0] * q.shape[1] * k.shape[2]))
    return [(start, min(start + rows, q.shape[2])) for start in range(0, q.shape[2], rows)]


def _save_for_backward(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _backward(ctx: torch.autograd.function.BackwardCFunction, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return slab_attention_backward(grad, *ctx.saved_tensors)


slab_attention.register_autograd(_backward, setup_context=_save_for_backward)


EPS = 1e-6  # of every LayerNorm, as in timm, DINOv2 and MAE; CLIP and torch have 1e-5


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017); `qk_norm` keeps logits small (Dehghani et al. 2023)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        eps: float = EPS,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ConfigError(f"attention: {dim} channels are not divisible by {heads} heads.")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.q_norm = nn.LayerNorm(dim // heads, eps=eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(dim // heads, eps=eps) if qk_norm else nn.Identity()
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b 1 n n"] | None = None) -> Float[Tensor, "b n d"]:
        """Return `mask`: (batch, 1, query, key), True where attention is allowed; None allows all."""
        q, k, v = self.project(x)
        x = attend(q, k, v, mask=mask, dropout=self.attn_drop.p if self.attn_drop.training else 0.0)
        return self.proj_drop(self.proj(x.transpose(1, 2).flatten(2)))

    def project(self, x: Float[Tensor, "b n d"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each b heads n d/heads."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.q_norm(q), self.k_norm(k), v

    def weights(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b heads n n"]:
        """Return the attention weights (batch, heads, query, key); rows sum to one."""
        q, k, _ = self.project(x)
        return (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1)


MlpKind = Literal["gelu", "gelu_tanh", "quick_gelu", "swiglu", "swiglu_packed"]

MLPS: dict[str, Callable[..., nn.Module]] = {
    "gelu": Mlp,
    "gelu_tanh": partial(Mlp, act=partial(nn.GELU, approximate="tanh")),  # SigLIP
    "quick_gelu": partial(Mlp, act=QuickGELU),  # OpenAI's CLIP
    "swiglu": SwiGLU,
    "swiglu_packed": PackedSwiGLU,
}


class BlockOptions(TypedDict, total=False):
    """Options of all blocks of a ViT; the defaults are those of `Block`."""

    mlp_ratio: float  # hidden channels of the MLP over channels
    mlp: MlpKind
    qkv_bias: bool
    qk_norm: bool
    layer_scale: float | None  # initial value
    attn_drop: float
    proj_drop: float
    eps: float


class Block(nn.Module):
    """Pre-norm Transformer block: attention and MLP, each with LayerNorm before and a residual connection."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mlp_ratio: float = 4.0,
        mlp: MlpKind = "gelu",
        qkv_bias: bool = True,
        qk_norm: bool = False,
        layer_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.0,
        eps: float = EPS,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = Attention(
            dim,
            heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            eps=eps,
        )
        self.ls1 = LayerScale(dim, layer_scale) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = MLPS[mlp](dim, int(dim * mlp_ratio), drop=proj_drop)
        self.ls2 = LayerScale(dim, layer_scale) if layer_scale else nn.Identity()
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b 1 n n"] | None = None) -> Float[Tensor, "b n d"]:
        """Return `mask`: (batch, 1, query, key), True where attention is allowed; None allows all."""
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x), mask)))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    def attention(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b heads n n"]:
        """Return the attention weights of this block for the input `x`."""
        return self.attn.weights(self.norm1(x))
