"""Joins the maps of several taps into one. b images, c channels, gh x gw tokens."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import ConfigError
from densevit.structures import Features, FeatureSpec

Fuse = Literal["concat", "sum"]


def fused_spec(features: list[FeatureSpec], fuse: Fuse) -> FeatureSpec:
    """What `fuse_maps` will give.

    Raises:
        ConfigError: maps of different sizes, or a sum of different channels.
    """
    if len({spec.stride for spec in features}) > 1:
        raise ConfigError(f"decoder: needs maps of one stride, not {[spec.stride for spec in features]}; 'dpt' fits.")
    channels = [spec.channels for spec in features]
    if fuse == "sum" and len(set(channels)) > 1:
        raise ConfigError(f"decoder.fuse: 'sum' needs maps of one width, not {channels}; 'concat' fits.")
    return FeatureSpec(sum(channels) if fuse == "concat" else channels[0], features[0].stride)


def fuse_maps(features: Features, fuse: Fuse) -> Float[Tensor, "b c gh gw"]:
    if len(features.maps) == 1:
        return features.maps[0]
    return torch.cat(features.maps, dim=1) if fuse == "concat" else torch.stack(features.maps).sum(0)
