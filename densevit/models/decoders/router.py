"""Which expert an image belongs to, by a small Transformer over the coarsest map (ZoeDepth-NK: indoors or outdoors).

b images, c channels, h x w cells, n = 1 + h * w tokens, d channels.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn


class Router(nn.Module):
    """It is not taught here: an argmax has no gradient, and its labels are domains, not depths.

    Every image is asked for by itself; the original lets a batch vote, so that an answer depends on the neighbours.
    """

    def __init__(self, channels: int, experts: int, *, dim: int = 128, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, dim, 1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 1024, batch_first=True) for _ in range(depth)
        )
        self.classify = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, experts))
        self.requires_grad_(False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Int64[Tensor, "b"]:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)  # its class token is nothing but a place
        tokens = tokens + waves(tokens.shape[1], tokens.shape[2], tokens)
        for block in self.blocks:
            tokens = block(tokens)
        return self.classify(tokens[:, 0]).argmax(1)


def waves(count: int, dim: int, like: Tensor) -> Float[Tensor, "count dim"]:
    """Sines, then cosines, of the place in the row (Vaswani et al. 2017)."""
    places = torch.arange(count, dtype=torch.float32, device=like.device)[:, None]
    steps = torch.arange(0, dim, 2, dtype=torch.float32, device=like.device)
    angles = places * (steps * (-math.log(10000.0) / dim)).exp()
    return torch.cat([angles.sin(), angles.cos()], 1).to(like.dtype)
