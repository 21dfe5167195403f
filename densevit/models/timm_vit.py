"""Builds timm's Vision Transformers and runs them; the only importer of timm, itself imported when one is built.

b images, h x w pixels.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import timm
import torch
from jaxtyping import Float
from timm.models import Beit, Eva, VisionTransformer
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models import beit, pretrained, timm_steps
from densevit.models.vit import Tap
from densevit.structures import Step


class Family(NamedTuple):
    """How one class of timm models is made ready, run and loaded."""

    prepare: Callable[[Any], None]
    run: Callable[[Any, Tensor, Sequence[int], bool], list[Tap]]
    convert: Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]
    steps: Callable[[Any, int, tuple[int, int]], tuple[Step, ...]]


def create(
    name: str,
    with_weights: bool,
    drop_path: float,
    image_size: int | tuple[int, int] | None,
    arguments: Mapping[str, Any],
) -> Any:
    """A timm model that takes any image size and has no classifier.

    Raises:
        ConfigError: no such model, one without plain tokens, or arguments it does not take.
        CheckpointError: weights that are neither in a cache nor within reach.
    """
    cfg = card(name)
    given = {**arguments, "num_classes": 0, "drop_path_rate": drop_path}
    if image_size is not None:
        given["img_size"] = image_size
    sketch = sketch_of(name, given)
    if not isinstance(sketch, PLAIN):
        kinds = "DINOv2, DINOv3, AugReg, DeiT, CLIP, SigLIP, MAE, BEiT or EVA"
        raise ConfigError(
            f"encoder.name: '{name}' is a {type(sketch).__name__}, whose tokens are no plain grid; use a ViT: {kinds}."
        )
    if not isinstance(sketch, Beit):
        given["dynamic_img_size"] = True
    overlay = pretrained.overlay(name, cfg) if with_weights else {}
    vit: Any = timm.create_model(name, pretrained=with_weights, pretrained_cfg_overlay=overlay, **given)
    vit.prune_intermediate_layers(len(vit.blocks), prune_head=True)
    return vit


def card(name: str) -> Any:
    """timm's PretrainedCfg of a model; None where it has none."""
    known, _, tag = name.partition(".")
    if not timm.is_model(known):
        near = difflib.get_close_matches(known, timm.list_models(), n=4)
        raise ConfigError(f"encoder.name: timm has no model '{known}'. Nearest: {', '.join(near) or 'none'}.")
    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError:
        tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{known}.*")]
        raise ConfigError(f"encoder.name: '{known}' has no weights '{tag}'. Known: {', '.join(tags)}.") from None


def sketch_of(name: str, given: Mapping[str, Any]) -> torch.nn.Module:
    """The model without memory for its parameters: what it is, before anything heavy is built or fetched."""
    try:
        with torch.device("meta"):
            return timm.create_model(name, **given)
    except TypeError as error:
        raise ConfigError(f"encoder: timm's '{name}' does not take these arguments: {error}.") from None


def patch_side(vit: Any, name: str) -> int:
    h, w = vit.patch_embed.feat_ratio(as_scalar=False)
    if h != w:
        raise ConfigError(f"encoder.name: '{name}' has patches of {h}x{w}; use one with square patches.")
    return int(h)


def family(vit: Any) -> Family:
    return BEIT if isinstance(vit, Beit) else USUAL


def leave(vit: Any) -> None:
    """Most need nothing."""


def run(vit: Any, image: Float[Tensor, "b 3 h w"], taps: Sequence[int], norm: bool) -> list[Tap]:
    has_prefix = vit.num_prefix_tokens > 0
    found = vit.forward_intermediates(
        image,
        indices=list(taps),
        norm=norm,
        return_prefix_tokens=has_prefix,
        stop_early=True,
        output_fmt="NLC",
        intermediates_only=True,
    )
    return [Tap(*tap) if has_prefix else Tap(tap, tap[:, :0]) for tap in found]


def convert(vit: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """As timm itself reads the published files of this model; positions are resampled to its grid."""
    return dict(inspect.getmodule(type(vit)).checkpoint_filter_fn(state, vit))  # type: ignore[union-attr]


PLAIN = (VisionTransformer, Eva, Beit)
USUAL = Family(leave, run, convert, timm_steps.steps)
BEIT = Family(beit.free_tables, beit.run, beit.convert, beit.steps)
