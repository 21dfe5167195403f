"""The interface of heads, which turn a decoder's map into a prediction at image size, and their registry.

b images, h x w pixels.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.decoders.base import Decoder, DecoderOutput
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
