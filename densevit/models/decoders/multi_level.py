"""Joins the maps of several taps into one. b images, c channels, h x w cells of the first map, where all meet."""

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
    """What `fuse_maps` will give.

    Raises:
        ConfigError: a sum of different channels.
    """
    channels = [spec.channels for spec in features]
    if fuse == "sum" and len(set(channels)) > 1:
        raise ConfigError(f"decoder.fuse: 'sum' needs maps of one width, not {channels}; 'concat' fits.")
    return FeatureSpec(sum(channels) if fuse == "concat" else channels[0], features[0].stride)


def fuse_maps(features: EncoderOutput, fuse: Fuse) -> Float[Tensor, "b c h w"]:
    if len(features.maps) == 1:
        return features.maps[0]
    maps = alike(features.maps)
    return torch.cat(maps, dim=1) if fuse == "concat" else torch.stack(maps).sum(0)


def alike(maps: Sequence[Float[Tensor, "b _ _ _"]]) -> list[Float[Tensor, "b _ h w"]]:
    """All at the size of the first, bilinear, as mmseg's `resize_concat`; a plain ViT's are so already."""
    return [upsample(map_, (maps[0].shape[-2], maps[0].shape[-1])) for map_ in maps]
