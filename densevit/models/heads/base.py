"""The base classes of heads, which turn a decoder's map into a prediction at image size, and their registry.

b images, h x w pixels.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.decoders.base import Decoder, DecoderOutput
from densevit.models.layers import ConvHead
from densevit.registry import Registry

Width = Annotated[int, Field(ge=0)]


class Head(nn.Module, ABC):
    """Built as `Head(channels, **options)`, with the channels of the decoder's map.

    Attributes:
        output: kind, unit and range of the prediction; goes into the model card.
        further: likewise of what it predicts beside that, by the names that decoder and head give them.
        check_decoder: raises ConfigError where the head cannot be built on this decoder.
    """

    output: HeadSpec
    further: Mapping[str, HeadSpec] = {}
    check_decoder: Callable[[Decoder], None] | None = None

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b k height width"] | DecoderOutput:
        """Return `size`: (height, width) of the padded image that `x` covers. In training it may return extras."""


HEADS = Registry[Head]("head")


class Activation(NamedTuple):
    depth: Callable[[Tensor, float, float], Tensor]  # of (x, low, high)
    inverse: Callable[[float, float, float], float]  # x of (depth, low, high)


def clamp_ste(x: Float[Tensor, "*shape"], low: float, high: float) -> Float[Tensor, "*shape"]:
    """Clamp with a straight-through gradient, so that pixels beyond the range still learn."""
    return x.detach().clamp(low, high) + (x - x.detach())


def logit(share: float) -> float:
    return math.log(share / (1 - share))


ACTIVATIONS = {
    # Linear in metres: Depth Anything's metric head, with a lower bound above 0 for the logarithm.
    "sigmoid": Activation(
        lambda x, low, high: low + (high - low) * x.sigmoid(),
        lambda depth, low, high: logit((depth - low) / (high - low)),
    ),
    # Linear in log depth.
    "log": Activation(
        lambda x, low, high: low * (math.log(high / low) * x.sigmoid()).exp(),
        lambda depth, low, high: logit(math.log(depth / low) / math.log(high / low)),
    ),
    # x is log depth.
    "exp": Activation(
        lambda x, low, high: clamp_ste(x, math.log(low), math.log(high)).exp(),
        lambda depth, low, high: math.log(depth),
    ),
    # Linear in metres, no gradient at the lower bound: DINOv2's DPT head.
    "relu": Activation(
        lambda x, low, high: low + F.relu(x),
        lambda depth, low, high: depth - low,
    ),
    # Linear in metres, bounded only by the clamp.
    "softplus": Activation(
        lambda x, low, high: low + F.softplus(x),
        lambda depth, low, high: depth - low + math.log(-math.expm1(low - depth)),
    ),
}


Uncertainty = Annotated[
    Literal["laplace"] | None,
    Field(description="laplace: predict the scale of the error of each pixel, too; null: do not"),
]

LOG_SCALE = (-7.0, 5.0)  # of the logarithm of the predicted scale
INITIAL = -2.3  # ln 0.1: a tenth of the depth


class LaplaceScale(nn.Module):
    """Predicts the scale b of a Laplace distribution of the error for each pixel.

    It reads the decoder's map without sending a gradient back, and its loss sees the depth without gradient, so that
    the depth is trained as it would be without it: the weights of everything else are the same to the bit.
    """

    clipped_alone = True  # its gradient's norm is no part of the others' (engine.optim.clipping_groups)

    def __init__(self, channels: int, hidden: int = 32) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # what is built after it draws the numbers that it would without it
            self.projection = ConvHead(channels, 1, hidden=hidden, align_corners=False)
            self.projection.init_output(INITIAL)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        return clamp_ste(self.projection(x.detach(), size).float(), *LOG_SCALE).exp()


class DepthHead(Head):
    """A head that gives depth and, where `uncertainty` asks for it, the scale of its error.

    For metric depth the scale b is that of the error of the natural logarithm: half of the errors are expected under
    0.69 b, 90 % under 2.3 b. For depth without unit it is a share of the map's mean absolute deviation from its median.
    """

    def __init__(self, channels: int, uncertainty: Uncertainty) -> None:
        super().__init__()
        self.uncertainty = None if uncertainty is None else LaplaceScale(channels)
        if uncertainty is not None:
            self.further = {"uncertainty": HeadSpec(kind="uncertainty", unit="")}

    @abstractmethod
    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        """Return the prediction for the decoder's map `x`."""

    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b 1 height width"] | DecoderOutput:
        depth = self.depth(x, size)
        return depth if self.uncertainty is None else DecoderOutput(depth, {"uncertainty": self.uncertainty(x, size)})
