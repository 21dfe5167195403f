"""What a head may ask of any decoder, and the names a config may use for them."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from densevit.registry import Registry
from densevit.structures import EncoderOutput, FeatureSpec


class DecoderOutput(NamedTuple):
    """A map, and what only the losses of training want to see beside it.

    Attributes:
        extras: deep supervision, class scores of queries, ...; every head behind the decoder is taught with them.
    """

    map: Float[Tensor, "b c h w"]
    extras: dict[str, Tensor]


class Decoder(nn.Module, ABC):
    """Turns feature maps into one map. Parts are built as `Part(features, prefix_tokens, **options)`.

    Attributes:
        output: channels and stride (image pixels per output pixel, at least nominally) of that map.
        joins: how many of the encoder's last blocks it runs itself, on `Features.rest`, with tokens of its own.
    """

    output: FeatureSpec
    joins: int = 0

    @abstractmethod
    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"] | DecoderOutput:
        """The map covers the same (padded) image as `features`; in training it may bring extras."""


DECODERS = Registry[Decoder]("decoder")
