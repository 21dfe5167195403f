"""Concatenates or sums several feature maps at the size of the first. b images, c channels, h x w cells."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.layers.conv_head import upsample
from densevit.structures import EncoderOutput, FeatureSpec

Fuse = Literal["concat", "sum"]


def fused_spec(features: list[FeatureSpec], fuse: Fuse) -> FeatureSpec:
    """Channels and stride of the result of `fuse_maps`. Raises ConfigError: a sum of maps with different channels."""
    channels = [spec.channels for spec in features]
    if fuse == "sum" and len(set(channels)) > 1:
        raise ConfigError(f"decoder.fuse: 'sum' needs maps of one width, not {channels}; 'concat' fits.")
    return FeatureSpec(sum(channels) if fuse == "concat" else channels[0], features[0].stride)


def fuse_maps(features: EncoderOutput, fuse: Fuse) -> Float[Tensor, "b c h w"]:
    if len(features.maps) == 1:
        return features.maps[0]
    maps = resize_to_first(features.maps)
    return torch.cat(maps, dim=1) if fuse == "concat" else torch.stack(maps).sum(0)


def resize_to_first(maps: Sequence[Float[Tensor, "b _ _ _"]]) -> list[Float[Tensor, "b _ h w"]]:
    """Resizes all maps to the first, bilinear, as mmseg's `resize_concat`."""
    return [upsample(map_, (maps[0].shape[-2], maps[0].shape[-1])) for map_ in maps]
