"""Linear probe decoder: concatenated feature levels, optional norm and 1x1 convolution."""

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.layers import build_norm, fused_spec, resize_to_first, upsample
from densevit.structures import EncoderOutput, FeatureSpec


@DECODERS.register("linear")
class Linear(Decoder):
    """Concatenates all feature levels, with optional norm and 1x1 convolution.

    With the bins head this is DINOv2's linear depth head. With `norm: batch` and a `segmentation` head without dropout
    it is its segmentation probe (mmseg's BNHead over `resize_concat`), and with `dropout: 0.1` DINOv3's.
    """

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        class_token: bool = False,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        norm: Literal["none", "batch"] = "none",
        channels: Annotated[int, Field(gt=0)] | None = None,
        scale: Literal[1, 2, 4] = 1,
    ) -> None:
        """Raise ConfigError: `class_token` for an encoder without one.

        Args:
            class_token: concatenate each level's class token to all its patches.
            dropout: rate of dropped channels in training, before the norm.
            norm: normalisation of the concatenated levels; batch in DINOv2's and DINOv3's segmentation probes.
            channels: channels of a 1x1 convolution; None for no convolution, as the head has a linear 1x1 of its own.
            scale: bilinear upsampling after it, for heads that are not linear.
        """
        super().__init__()
        if class_token and not (prefix_tokens and all(spec.tokens for spec in features)):
            raise ConfigError("decoder.class_token: this encoder has no class token, or not beside every map.")
        fused = fused_spec(features, "concat")
        width = fused.channels * (1 + class_token)
        self.class_token, self.scale = class_token, scale
        self.dropout = nn.Dropout2d(dropout)
        self.norm = build_norm(norm, width)
        self.project = nn.Conv2d(width, channels, 1) if channels else nn.Identity()
        self.output = FeatureSpec(channels or width, max(1, round(fused.stride / scale)))

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"]:
        x = self.project(self.norm(self.dropout(self.concat_levels(features))))
        return upsample(x, (x.shape[-2] * self.scale, x.shape[-1] * self.scale))

    def concat_levels(self, features: EncoderOutput) -> Float[Tensor, "b width gh gw"]:
        """Return for each level its patches, then its class token, in DINOv2's order."""
        maps = resize_to_first(features.maps)
        if not self.class_token:
            return torch.cat(maps, dim=1)
        pairs = zip(maps, features.prefix, strict=True)
        return torch.cat([x for map_, prefix in pairs for x in (map_, broadcast_token(prefix[:, 0], map_))], dim=1)


def broadcast_token(token: Float[Tensor, "b c"], over: Float[Tensor, "b _ gh gw"]) -> Float[Tensor, "b c gh gw"]:
    """Return one token at every cell of a map; channels last as a ViT's maps are, or `cat` would reorder them all."""
    return token[:, :, None, None].expand(-1, -1, *over.shape[-2:]).contiguous(memory_format=torch.channels_last)


Pool = Literal["token", "average", "both"]


@DECODERS.register("pool")
class PoolTokens(Decoder):
    """Class token, mean of the patches, or both, concatenated over all feature levels.

    With a linear head it makes a classifier of an encoder, trained and evaluated like dense models.
    """

    def __init__(self, features: list[FeatureSpec], prefix_tokens: int, *, pool: Pool = "token") -> None:
        """Raise ConfigError if a class token is needed and the encoder has none.

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
