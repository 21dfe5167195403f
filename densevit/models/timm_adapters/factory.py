"""timm's models by name: what is known of one, what it would be, how it is made and loaded.

Imported, as timm is, when one is built.
"""

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.timm_adapters import pretrained

Card = Any  # timm's PretrainedCfg; None where a model has none


def options(arguments: Mapping[str, Any], drop_path: float, image_size: int | tuple[int, int] | None) -> dict[str, Any]:
    """What `timm.create_model` is given for a model without classifier."""
    size = {} if image_size is None else {"img_size": image_size}
    return {**arguments, "num_classes": 0, "drop_path_rate": drop_path, **size}


def card(name: str) -> Card:
    """
    Raises:
        ConfigError: no such model, or no such weights of it.
    """
    known, _, tag = name.partition(".")
    if not timm.is_model(known):
        near = difflib.get_close_matches(known, timm.list_models(), n=4)
        raise ConfigError(f"encoder.name: timm has no model '{known}'. Nearest: {', '.join(near) or 'none'}.")
    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError:
        tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{known}.*")]
        raise ConfigError(f"encoder.name: '{known}' has no weights '{tag}'. Known: {', '.join(tags)}.") from None


def create_on_meta(name: str, given: Mapping[str, Any]) -> torch.nn.Module:
    """The model without memory for its parameters: what it is, before anything heavy is built or fetched."""
    try:
        with torch.device("meta"):
            return timm.create_model(name, **given)
    except TypeError as error:
        raise ConfigError(f"encoder: timm's '{name}' does not take these arguments: {error}.") from None


def make(name: str, known: Card, with_weights: bool, given: Mapping[str, Any]) -> Any:
    """
    Raises:
        CheckpointError: weights that are neither in a cache nor within reach.
    """
    overlay = pretrained.overlay(name, known) if with_weights else {}
    return timm.create_model(name, pretrained=with_weights, pretrained_cfg_overlay=overlay, **given)


def convert(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As timm itself reads published files of this model, original ones among them; positions come to its grid."""
    return dict(inspect.getmodule(type(model)).checkpoint_filter_fn(dict(state), model))  # type: ignore[union-attr]
