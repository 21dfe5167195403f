"""Normalisation layers of b c h w maps, by name."""

import math
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Norm = Literal["none", "batch", "layer", "group"]


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        # Both permutes are views; layer_norm is fast on channels-last memory.
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


def build_norm(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "layer":
        return LayerNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(math.gcd(32, channels), channels)
    return nn.Identity()
