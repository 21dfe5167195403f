"""The linear probe: what do the tokens know by themselves?"""

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.decoders.multi_level import alike, fused_spec
from densevit.models.layers.conv_head import upsample
from densevit.models.layers.norms import build_norm
from densevit.structures import EncoderOutput, FeatureSpec


@DECODERS.register("linear")
class Linear(Decoder):
    """All taps side by side, optionally normalised and through one 1x1 convolution.

    With the bins head this is DINOv2's linear depth head. With `norm: batch` and a `labels` head without dropout it is
    its segmentation probe (mmseg's BNHead over `resize_concat`), and with `dropout: 0.1` DINOv3's.
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
        """
        Args:
            class_token: each tap's class token stands beside its every patch.
            dropout: share of the channels that are zeroed in training, before the norm.
            norm: of the gathered taps; batch in DINOv2's and DINOv3's segmentation probes.
            channels: of the 1x1 convolution; None leaves that to the head, whose own 1x1 is linear already.
            scale: bilinear upsampling behind it, for heads that are not linear.

        Raises:
            ConfigError: a class token is asked of an encoder that has none.
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
        x = self.project(self.norm(self.dropout(self.gather(features))))
        return upsample(x, (x.shape[-2] * self.scale, x.shape[-1] * self.scale))

    def gather(self, features: EncoderOutput) -> Float[Tensor, "b width gh gw"]:
        """Per tap its patches, then, as DINOv2 orders them, its class token."""
        maps = alike(features.maps)
        if not self.class_token:
            return torch.cat(maps, dim=1)
        pairs = zip(maps, features.prefix, strict=True)
        return torch.cat([x for map_, prefix in pairs for x in (map_, spread(prefix[:, 0], map_))], dim=1)


def spread(token: Float[Tensor, "b c"], over: Float[Tensor, "b _ gh gw"]) -> Float[Tensor, "b c gh gw"]:
    """One token at every place of a map."""
    return token[:, :, None, None].expand(-1, -1, *over.shape[-2:])
