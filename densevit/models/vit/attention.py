"""Multi-head self-attention. b images, n tokens, d channels; timm's parameter names."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.ops.attention import attend

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
        """`mask`: (batch, 1, query, key), True where attention is allowed; None allows all."""
        q, k, v = self.project(x)
        x = attend(q, k, v, mask=mask, dropout=self.attn_drop.p if self.training else 0.0)
        return self.proj_drop(self.proj(x.transpose(1, 2).flatten(2)))

    def project(self, x: Float[Tensor, "b n d"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each b heads n d/heads."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.q_norm(q), self.k_norm(k), v

    def weights(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b heads n n"]:
        """Attention weights (batch, heads, query, key); rows sum to one."""
        q, k, _ = self.project(x)
        return (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
