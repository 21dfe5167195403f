"""What a head may ask of any decoder, and the names a config may use for them."""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from densevit.registry import Registry
from densevit.structures import Features, FeatureSpec


class Decoder(nn.Module, ABC):
    """Turns feature maps into one map. Parts are built as `Part(features, prefix_tokens, **options)`.

    Attributes:
        output: channels and stride (image pixels per output pixel, at least nominally) of that map.
    """

    output: FeatureSpec

    @abstractmethod
    def forward(self, features: Features) -> Float[Tensor, "b channels h w"]:
        """The map covers the same (padded) image as `features`."""


DECODERS = Registry[Decoder]("decoder")
