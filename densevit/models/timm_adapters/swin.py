"""Builds timm's Swin Transformers (Liu et al. 2021, 2022) and runs them; imported, as timm is, when one is built.

b images, h x w pixels.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from timm.models import SwinTransformer, SwinTransformerV2
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError
from densevit.models.timm_adapters import factory


def create(name: str, with_weights: bool, given: Mapping[str, Any]) -> Any:
    """A Swin of timm that takes any image size, without classifier and final norm.

    Args:
        given: to timm, by `timm_models.options`.

    Raises:
        ConfigError: no such model, one of another kind, or arguments it does not take.
        CheckpointError: weights that are neither in a cache nor within reach.
    """
    known = factory.card(name)
    given = {**given, "strict_img_size": False}
    if not name.startswith("swin"):
        raise ConfigError(f"encoder.name: '{name}' is no Swin Transformer; encoder 'timm' takes plain ones.")
    sketch = factory.create_on_meta(name, given)
    if not isinstance(sketch, SwinTransformer | SwinTransformerV2):
        raise ConfigError(f"encoder.name: '{name}' is a {type(sketch).__name__}; would fit: swin_*, swinv2_*.")
    swin = factory.make(name, known, with_weights, given)
    swin.norm = swin.head = nn.Identity()
    return swin


def stages(
    swin: Any, image: Float[Tensor, "b 3 h w"], last: int, checkpointing: bool
) -> list[Float[Tensor, "b _ _ _"]]:
    """The maps behind the stages up to `last`."""
    x, maps = swin.patch_embed(image), []
    for stage in swin.layers[: last + 1]:
        x = stage.downsample(x)
        for block in stage.blocks:
            x = checkpoint(block, x, use_reentrant=False) if checkpointing and torch.is_grad_enabled() else block(x)
        maps.append(x.permute(0, 3, 1, 2))
    return maps
