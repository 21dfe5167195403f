"""The uncertainty of a depth head. b images, h x w pixels."""

from abc import abstractmethod
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.decoders.base import DecoderOutput
from densevit.models.heads.base import Head
from densevit.models.heads.depth_activations import clamp_ste
from densevit.models.layers.conv_head import ConvHead

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
        """The prediction for the decoder's map `x`."""

    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b 1 height width"] | DecoderOutput:
        depth = self.depth(x, size)
        return depth if self.uncertainty is None else DecoderOutput(depth, {"uncertainty": self.uncertainty(x, size)})
