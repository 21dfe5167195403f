"""The head that estimates the focal length of an image's camera (after Depth Pro, Bochkovskii et al. 2024)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.heads.base import HEADS, Head

USUAL = 0.5 / math.tan(math.radians(60) / 2)  # of 60 degrees; what an untrained head gives


@HEADS.register("focal")
class FocalHead(Head):
    """Mean over the map and a linear layer to the logarithm of the focal length over the width of the image.

    For a decoder of its own, `model.decoders: {focal: {type: pool, pool: average}}`, which sees the image alone and
    never the camera that `conditioning: {rays: {}}` puts in.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 1)
        nn.init.trunc_normal_(self.linear.weight, std=0.02)
        nn.init.constant_(self.linear.bias, math.log(USUAL))
        self.output = HeadSpec(kind="focal", unit="")

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 1 1"]:
        log_ratio = self.linear(x.mean((2, 3))).float()
        return torch.exp(log_ratio.clamp(-3, 4))[:, :, None, None]  # 169 to 0.5 degrees
