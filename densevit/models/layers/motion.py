"""Motion blocks: attention over the frames of a clip, between the levels of a decoder (Video Depth Anything, Chen et
al. 2025, after AnimateDiff).

frames = clips x t, c channels, h x w cells of a map.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from densevit.models.layers.norms import build_norm
from densevit.models.vit.attention import Attention

RESIDUALS = 2  # attentions in a block


class MotionBlocks(nn.ModuleList):
    """A motion block for each map of a decoder that has them."""

    def __init__(self, channels: Sequence[int], heads: int) -> None:
        """
        Args:
            channels: of the maps.
            heads: of the attention.

        Raises:
            ConfigError: a number of channels is not divisible by the heads.
        """
        super().__init__(MotionBlock(width, heads) for width in channels)


class MotionBlock(nn.Module):
    """Each cell of a map attends to the same cell in the other frames of its clip.

    GroupNorm, linear, two attentions over time and a gated feed-forward layer, each with a LayerNorm before and added
    to its input, linear; all of it added to the map. The last layer begins at zero, so that an image model begins as it
    was.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm = build_norm("group", channels)
        self.proj_in = nn.Linear(channels, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(RESIDUALS))
        self.attentions = nn.ModuleList(Attention(channels, heads, qkv_bias=False) for _ in range(RESIDUALS))
        self.mlp_norm = nn.LayerNorm(channels)
        self.mlp_in = nn.Linear(channels, 8 * channels)  # values and gates of GEGLU (Shazeer 2020)
        self.mlp_out = nn.Linear(4 * channels, channels)
        self.proj_out = nn.Linear(channels, channels)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)

    def forward(self, x: Float[Tensor, "frames c h w"], clip_length: int) -> Float[Tensor, "frames c h w"]:
        """
        Args:
            clip_length: t; each clip's frames are consecutive.
        """
        frames, channels, h, w = x.shape
        tokens = self.norm(x).unflatten(0, (-1, clip_length)).permute(0, 3, 4, 1, 2).reshape(-1, clip_length, channels)
        tokens = self.proj_in(tokens)
        positions = sinusoids(clip_length, channels).to(tokens)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            tokens = tokens + attention(norm(tokens) + positions)
        values, gates = self.mlp_in(self.mlp_norm(tokens)).chunk(2, dim=-1)
        tokens = self.proj_out(tokens + self.mlp_out(values * F.gelu(gates)))
        return x + tokens.reshape(-1, h, w, clip_length, channels).permute(0, 3, 4, 1, 2).reshape(
            frames, channels, h, w
        )


def sinusoids(length: int, channels: int) -> Float[Tensor, "t c"]:
    """Positions in time: sine and cosine in turn, wavelengths from 2 pi to 10000 * 2 pi (Vaswani et al. 2017)."""
    rates = torch.exp(torch.arange(0, channels, 2) * (-math.log(10000.0) / channels))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :channels]
