"""The interface of all decoders and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from densevit.registry import Registry
from densevit.structures import EncoderOutput, FeatureSpec


class DecoderOutput(NamedTuple):
    """A map, and tensors that only the training losses use.

    Attributes:
        extras: for deep supervision, class scores of queries, ...; passed on with every head after the decoder.
    """

    map: Float[Tensor, "b c h w"]
    extras: dict[str, Tensor]


class Decoder(nn.Module, ABC):
    """Turns feature maps into one map. Built as `Decoder(features, prefix_tokens, **options)`.

    Attributes:
        output: channels and stride (image pixels per output pixel, at least nominally) of that map.
        encoder_blocks: number of the encoder's last blocks that it runs itself (`EncoderOutput.remaining`).
        query_classes: number of classes of a decoder whose outputs are queries; else 0.
        level_channels: channels of the levels of a pyramid, the finest first, that `EncoderOutput.adapters` may change;
            empty where it has none.
        fusion_channels: likewise, of the outputs of its fusions, the deepest first.
    """

    output: FeatureSpec
    encoder_blocks: int = 0
    query_classes: int = 0
    level_channels: Sequence[int] = ()
    fusion_channels: Sequence[int] = ()

    @abstractmethod
    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"] | DecoderOutput:
        """Return the map covers the same (padded) image as `features`; in training it may bring extras."""


DECODERS = Registry[Decoder]("decoder")
