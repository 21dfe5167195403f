"""Heads turn a decoder's map into a prediction at image size; activation and range make its unit."""

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.card import OutputSpec
from densevit.errors import ConfigError
from densevit.models.activations import ACTIVATIONS, within
from densevit.models.decoder import Decoded
from densevit.models.projection import Growing, Projection, upsample
from densevit.registry import Registry


class Head(nn.Module, ABC):
    """Parts are built as `Part(channels, **options)`, `channels` being those of the decoder's map.

    Attributes:
        output: kind, unit and range of the prediction; goes into the model card.
    """

    output: OutputSpec

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b k height width"] | Decoded:
        """`size`: (height, width) of the padded image that `x` covers. In training the answer may bring extras."""


HEADS = Registry[Head]("head")


Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
Growth = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Width = Annotated[int, Field(ge=0)]


def check_range(min_depth: float, max_depth: float) -> tuple[float, float]:
    if not min_depth < max_depth:
        raise ConfigError(f"head: min_depth {min_depth} is not below max_depth {max_depth}.")
    return min_depth, max_depth


@HEADS.register("metric")
class MetricHead(Head):
    """Depth in metres within a range."""

    def __init__(
        self,
        channels: int,
        *,
        max_depth: Metres = 10.0,
        min_depth: Annotated[float, Field(ge=0)] = 1e-3,
        activation: Literal["sigmoid", "log", "exp", "softplus", "relu"] = "sigmoid",
        init_depth: Metres | None = None,
        hidden: Width = 32,
        align_corners: bool = False,
        scale: Growth | None = None,
        stretch: Growing = "bilinear",
    ) -> None:
        """
        Args:
            max_depth, min_depth: metres, the ends of what it can say.
            activation: `sigmoid`, `softplus` and `relu` are even in metres, `log` and `exp` in ratios (activations.py).
            init_depth: what the untrained head says everywhere; a quarter of `max_depth` unless given, near the
                medians of NYU (10) and KITTI (80).
            hidden: width of the last 3x3 convolution; 0 makes the head a single 1x1.
            align_corners: of the upsampling; true as published for DPT and Depth Anything.
            scale: the map grows by this, and depth is then stretched to image size (DINOv2: 2); None lets the map grow
                to image size.
            stretch: how; bicubic in transformers' DPT, which overshoots a little.

        Raises:
            ConfigError: an empty range, a start outside it, or a floor of 0 where the logarithm is taken.
        """
        super().__init__()
        self.low, self.high = check_range(min_depth, max_depth)
        start = max_depth / 4 if init_depth is None else init_depth
        if not min_depth < start < max_depth:
            raise ConfigError(f"head.init_depth: {start} is not within {min_depth} to {max_depth}.")
        if min_depth == 0 and activation in ("log", "exp"):
            raise ConfigError(f"head.min_depth: activation '{activation}' needs it above 0.")
        self.activation, self.stretch = activation, stretch
        self.projection = Projection(channels, 1, hidden=hidden, align_corners=align_corners, scale=scale)
        self.projection.start_at(ACTIVATIONS[activation].inverse(start, min_depth, max_depth))
        self.output = OutputSpec(kind="metric", unit="m", range=(min_depth, max_depth))

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        # bfloat16 has three digits: the activation and all behind it want float.
        logits = self.projection(x, size).float()
        depth = ACTIVATIONS[self.activation].depth(logits, self.low, self.high)
        return upsample(within(depth, self.low, self.high), size, how=self.stretch)


@HEADS.register("disparity")
class DisparityHead(Head):
    """Inverse depth up to scale and shift, bigger is nearer, never negative (MiDaS, Depth Anything)."""

    def __init__(
        self,
        channels: int,
        *,
        activation: Literal["relu", "softplus"] = "relu",
        hidden: Width = 32,
        align_corners: bool = False,
        scale: Growth | None = None,
        stretch: Growing = "bilinear",
    ) -> None:
        """
        Args:
            hidden, align_corners, scale, stretch: as of `metric`.
        """
        super().__init__()
        self.smooth, self.stretch = activation == "softplus", stretch
        self.projection = Projection(channels, 1, hidden=hidden, align_corners=align_corners, scale=scale)
        self.projection.start_at(1.0)  # away from 0, where a ReLU learns nothing
        self.output = OutputSpec(kind="disparity", unit="")

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        x = self.projection(x, size).float()
        return upsample(F.softplus(x) if self.smooth else F.relu(x), size, how=self.stretch)


@HEADS.register("affine")
class AffineHead(Head):
    """Depth up to scale and shift; with `exp` positive, as in Depth Anything 3."""

    def __init__(
        self,
        channels: int,
        *,
        activation: Literal["identity", "exp"] = "identity",
        hidden: Width = 32,
        align_corners: bool = False,
    ) -> None:
        super().__init__()
        self.positive = activation == "exp"
        self.projection = Projection(channels, 1, hidden=hidden, align_corners=align_corners)
        self.projection.start_at(0.0)
        self.output = OutputSpec(kind="affine", unit="")

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        x = self.projection(x, size).float()
        return within(x, -20.0, 20.0).exp() if self.positive else x
