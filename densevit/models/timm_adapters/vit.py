"""Builds timm's Vision Transformers and runs them; imported, as timm is, when one is built.

b images, h x w pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from timm.models import Beit, Eva, VisionTransformer
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.timm_adapters import beit, blocks, factory
from densevit.models.vit.vision_transformer import BlockOutput
from densevit.structures import Step


class Family(NamedTuple):
    """How one class of timm models is made ready, run and loaded."""

    prepare: Callable[[Any], None]
    run: Callable[[Any, Tensor, Sequence[int], bool], list[BlockOutput]]
    convert: Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]
    steps: Callable[[Any, int, tuple[int, int]], tuple[Step, ...]]


def create(name: str, with_weights: bool, given: Mapping[str, Any]) -> Any:
    """A timm model that takes any image size and has no classifier.

    Args:
        given: to timm, by `timm_models.options`.

    Raises:
        ConfigError: no such model, one without plain tokens, or arguments it does not take.
        CheckpointError: weights that are neither in a cache nor within reach.
    """
    known = factory.card(name)
    sketch = factory.create_on_meta(name, given)
    if not isinstance(sketch, PLAIN):
        kinds = "DINOv2, DINOv3, AugReg, DeiT, CLIP, SigLIP, MAE, BEiT or EVA"
        raise ConfigError(
            f"encoder.name: '{name}' is a {type(sketch).__name__}, whose tokens are no plain grid; use a ViT: {kinds}."
        )
    if not isinstance(sketch, Beit):
        given = {**given, "dynamic_img_size": True}
    vit = factory.make(name, known, with_weights, given)
    vit.prune_intermediate_layers(len(vit.blocks), prune_head=True)
    return vit


def patch_side(vit: Any, name: str) -> int:
    h, w = vit.patch_embed.feat_ratio(as_scalar=False)
    if h != w:
        raise ConfigError(f"encoder.name: '{name}' has patches of {h}x{w}; use one with square patches.")
    return int(h)


def family(vit: Any) -> Family:
    return BEIT if isinstance(vit, Beit) else USUAL


def leave(vit: Any) -> None:
    """Most need nothing."""


def run(vit: Any, image: Float[Tensor, "b 3 h w"], out_indices: Sequence[int], norm: bool) -> list[BlockOutput]:
    has_prefix = vit.num_prefix_tokens > 0
    found = vit.forward_intermediates(
        image,
        indices=list(out_indices),
        norm=norm,
        return_prefix_tokens=has_prefix,
        stop_early=True,
        output_fmt="NLC",
        intermediates_only=True,
    )
    return [BlockOutput(*tap) if has_prefix else BlockOutput(tap, tap[:, :0]) for tap in found]


PLAIN = (VisionTransformer, Eva, Beit)
USUAL = Family(leave, run, factory.convert, blocks.block_functions)
BEIT = Family(beit.move_bias_to_blocks, beit.run, beit.convert, beit.steps)
