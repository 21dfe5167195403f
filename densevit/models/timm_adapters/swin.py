"""Builds and runs timm's Swin Transformers (Liu et al. 2021, 2022); imported, as timm is, when one is built.

b images, h x w pixels.
"""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from timm.models import SwinTransformer, SwinTransformerV2
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.timm_adapters import factory


def create(name: str, with_weights: bool, given: Mapping[str, Any]) -> Any:
    """A Swin of timm that takes any image size, without classifier and final norm. `given`: arguments of
    `timm.create_model`. Raises ConfigError: no such model, one of another kind, or arguments it does not take. Raises
    CheckpointError: weights that are neither in a cache nor reachable."""
    known = factory.pretrained_cfg_of(name)
    given = {**given, "strict_img_size": False}
    if not name.startswith("swin"):
        raise ConfigError(f"encoder.name: '{name}' is no Swin Transformer; for plain ViTs use encoder 'timm'.")
    meta_model = factory.create_on_meta(name, given)
    if not isinstance(meta_model, SwinTransformer | SwinTransformerV2):
        raise ConfigError(f"encoder.name: '{name}' is a {type(meta_model).__name__}; would fit: swin_*, swinv2_*.")
    swin = factory.create_model(name, known, with_weights, given)
    swin.norm = swin.head = nn.Identity()
    return swin


def forward_stages(swin: Any, image: Float[Tensor, "b 3 h w"]) -> list[Float[Tensor, "b _ _ _"]]:
    """Return the map after each stage."""
    x, maps = swin.patch_embed(image), []
    for stage in swin.layers:
        x = stage(x)
        maps.append(x.permute(0, 3, 1, 2))
    return maps
