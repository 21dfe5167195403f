"""What a Vision Transformer is made of. b images, n tokens, d channels. Parameters bear timm's names."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Tokens = Float[Tensor, "b n d"]
EPS = 1e-6  # of every LayerNorm, as in timm, DINOv2 and MAE; torch's own default is 1e-5


class Attention(nn.Module):
    """Every token asks all others (Vaswani et al. 2017); `qk_norm` keeps logits small (Dehghani et al. 2023)."""

    def __init__(self, dim: int, heads: int, *, qkv_bias: bool = True, qk_norm: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.q_norm = nn.LayerNorm(dim // heads, eps=EPS) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(dim // heads, eps=EPS) if qk_norm else nn.Identity()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each: b heads n d/heads
        x = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.proj(x.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Every token thinks for itself."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.fc2(F.gelu(self.fc1(x)))


class LayerScale(nn.Module):
    """A learned gain per channel, small at first, so that deep models start near the identity (Touvron et al. 2021)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016): in training, some images skip the branch; the others make up for it."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if not self.training:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(x.shape[0], 1, 1).bernoulli_(keep).div_(keep)


class Block(nn.Module):
    """Attention, then Mlp, each on a normalised copy and added back."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = Attention(dim, heads, qkv_bias=qkv_bias, qk_norm=qk_norm)
        self.ls1 = LayerScale(dim, layer_scale) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))
        self.ls2 = LayerScale(dim, layer_scale) if layer_scale else nn.Identity()
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))
