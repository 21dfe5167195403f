"""Pooling of tokens to one vector per image. b images, n = p + cells tokens (p prefix, class first), d channels."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from densevit.models.vit.attention import EPS
from densevit.models.vit.mlp import Mlp

Pool = Literal["token", "avg", "map"]


class TokenPool(nn.Module):
    """The class token."""

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        return x[:, 0]


class AveragePool(nn.Module):
    """The mean of the patches, without class and register tokens."""

    def __init__(self, prefix_tokens: int) -> None:
        super().__init__()
        self.prefix_tokens = prefix_tokens

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        return x[:, self.prefix_tokens :].mean(dim=1)


class AttentionPool(nn.Module):
    """Attention of a learned query to the patches, then an MLP (Zhai et al. 2022; SigLIP's 'map'). timm's names."""

    def __init__(
        self,
        dim: int,
        heads: int,
        prefix_tokens: int = 0,
        *,
        mlp_ratio: float = 4.0,
        activation: str = "gelu",
        eps: float = EPS,
    ) -> None:
        super().__init__()
        self.heads, self.prefix_tokens = heads, prefix_tokens
        self.latent = nn.Parameter(torch.empty(1, 1, dim))
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), activation=activation)
        std = dim**-0.5
        nn.init.trunc_normal_(self.latent, std=std, a=-2 * std, b=2 * std)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        patches = x[:, self.prefix_tokens :]
        q = self.q(self.latent).expand(x.shape[0], -1, -1).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(patches).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return (x + self.mlp(self.norm(x)))[:, 0]
