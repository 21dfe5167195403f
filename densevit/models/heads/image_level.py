"""Heads with one answer for the whole image: its class, or the focal length of its camera."""

import math
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.heads.base import HEADS, Head
from densevit.models.layers import ClassCount, Names, class_names


@HEADS.register("classifier")
class Classifier(Head):
    """Mean over the map, dropout and a linear layer; for the decoder `pool`."""

    def __init__(
        self,
        channels: int,
        *,
        classes: ClassCount | Names,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    ) -> None:
        """
        Args:
            classes: names in the order of their ids, or their number.
            dropout: rate in training.
        """
        super().__init__()
        names = class_names(classes)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(channels, len(names))
        nn.init.trunc_normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)
        self.output = HeadSpec(kind="class", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b k 1 1"]:
        return self.linear(self.dropout(x.mean((2, 3)))).float()[:, :, None, None]


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
