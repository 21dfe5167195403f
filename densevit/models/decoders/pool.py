"""Pooled features of the whole image as a map of 1 x 1, for classification."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder
from densevit.structures import EncoderOutput, FeatureSpec

Pool = Literal["token", "average", "both"]


@DECODERS.register("pool")
class PoolTokens(Decoder):
    """Class token, mean of the patches, or both, concatenated over all feature levels.

    With a linear head it makes a classifier of an encoder, trained and evaluated like dense models.
    """

    def __init__(self, features: list[FeatureSpec], prefix_tokens: int, *, pool: Pool = "token") -> None:
        """Raises ConfigError if a class token is needed and the encoder has none.

        Args:
            pool: `token` as in the original ViT, `average` as in timm's `global_pool: avg`, `both` as in DINOv2's
                linear classifiers.
        """
        super().__init__()
        if pool != "average" and not (prefix_tokens and all(feature.tokens for feature in features)):
            raise ConfigError(f"decoder.pool: '{pool}' needs a class token, which this encoder lacks; use 'average'.")
        self.pool = pool
        width = sum(feature.channels for feature in features)
        self.output = FeatureSpec(2 * width if pool == "both" else width, features[-1].stride)

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels 1 1"]:
        levels = zip(features.maps, features.prefix, strict=True)
        vectors = [vector for map_, prefix in levels for vector in self.parts(map_, prefix)]
        return torch.cat(vectors, dim=1)[:, :, None, None]

    def parts(self, map_: Float[Tensor, "b c gh gw"], prefix: Float[Tensor, "b p c"]) -> list[Float[Tensor, "b c"]]:
        token = [] if self.pool == "average" else [prefix[:, 0]]
        mean = [] if self.pool == "token" else [map_.mean((2, 3))]
        return token + mean
