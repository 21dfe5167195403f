"""Transformer blocks. b images, n tokens, d channels; timm's parameter names."""

from typing import TypedDict

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from densevit.models.vit.attention import EPS, Attention
from densevit.models.vit.mlp import MLPS, MlpKind


class LayerScale(nn.Module):
    """A learned factor per channel, initially small (Touvron et al. 2021)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016): kept samples are divided by the keep probability."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if not self.training:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(x.shape[0], 1, 1).bernoulli_(keep).div_(keep)


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
        """`mask`: (batch, 1, query, key), True where attention is allowed; None allows all."""
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x), mask)))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    def attention(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b heads n n"]:
        """Attention weights of this block for the input `x`."""
        return self.attn.weights(self.norm1(x))
