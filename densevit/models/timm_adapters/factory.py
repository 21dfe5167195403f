"""Creates timm models by name and converts their checkpoints.

Imported, as timm is, when a model is built.
"""

import difflib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.timm_adapters import pretrained

PretrainedCfg = Any  # timm's; None for a model without one


def create_model_kwargs(
    arguments: Mapping[str, Any], drop_path: float, image_size: int | tuple[int, int] | None
) -> dict[str, Any]:
    """Arguments of `timm.create_model` for a model without classifier."""
    size = {} if image_size is None else {"img_size": image_size}
    return {**arguments, "num_classes": 0, "drop_path_rate": drop_path, **size}


def pretrained_cfg_of(name: str) -> PretrainedCfg:
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


def licence_of(name: str, pretrained: bool, weights: Path | None) -> str:
    """timm's `license` of published weights; of a local file, if `name` has the tag of published weights."""
    is_published = pretrained or (weights is not None and "." in name)
    cfg = pretrained_cfg_of(name) if is_published else None
    return (cfg and cfg.license) or "unknown"


def create_on_meta(name: str, given: Mapping[str, Any]) -> torch.nn.Module:
    """The model on the meta device, for checks before anything is built or downloaded."""
    try:
        with torch.device("meta"):
            return timm.create_model(name, **given)
    except TypeError as error:
        raise ConfigError(f"encoder: timm's '{name}' does not take these arguments: {error}.") from None


def create_model(name: str, known: PretrainedCfg, with_weights: bool, given: Mapping[str, Any]) -> Any:
    """
    Raises:
        CheckpointError: weights that are neither in a cache nor reachable.
    """
    overlay = pretrained.pretrained_cfg_overlay(name, known) if with_weights else {}
    return timm.create_model(name, pretrained=with_weights, pretrained_cfg_overlay=overlay, **given)


def convert(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """timm's `checkpoint_filter_fn`, which reads original files and interpolates position embeddings."""
    return dict(inspect.getmodule(type(model)).checkpoint_filter_fn(dict(state), model))  # type: ignore[union-attr]
