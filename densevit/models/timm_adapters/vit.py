"""Builds and runs timm's Vision Transformers; imported, as timm is, when one is built.

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
from densevit.structures import BlockFunction


class ModelAdapter(NamedTuple):
    """How one class of timm models is prepared, run and loaded."""

    prepare: Callable[[Any], None]
    forward_blocks: Callable[[Any, Tensor, Sequence[int], bool], list[BlockOutput]]
    convert: Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]
    block_functions: Callable[[Any, int, tuple[int, int]], tuple[BlockFunction, ...]]


def create(name: str, with_weights: bool, given: Mapping[str, Any]) -> Any:
    """A timm model that takes any image size and has no classifier.

    Args:
        given: arguments of `timm.create_model`.

    Raises:
        ConfigError: no such model, one without plain tokens, or arguments it does not take.
        CheckpointError: weights that are neither in a cache nor reachable.
    """
    known = factory.pretrained_cfg_of(name)
    meta_model = factory.create_on_meta(name, given)
    if not isinstance(meta_model, SUPPORTED_CLASSES):
        kinds = "DINOv2, DINOv3, AugReg, DeiT, CLIP, SigLIP, MAE, BEiT or EVA"
        raise ConfigError(
            f"encoder.name: '{name}' is a {type(meta_model).__name__}, not a plain grid of tokens; use a ViT: {kinds}."
        )
    if not isinstance(meta_model, Beit):
        given = {**given, "dynamic_img_size": True}
    vit = factory.create_model(name, known, with_weights, given)
    vit.prune_intermediate_layers(len(vit.blocks), prune_head=True)
    return vit


def square_patch_size(vit: Any, name: str) -> int:
    h, w = vit.patch_embed.feat_ratio(as_scalar=False)
    if h != w:
        raise ConfigError(f"encoder.name: '{name}' has patches of {h}x{w}; use one with square patches.")
    return int(h)


def adapter_for(vit: Any) -> ModelAdapter:
    return BEIT_ADAPTER if isinstance(vit, Beit) else DEFAULT_ADAPTER


def no_preparation(vit: Any) -> None:
    """Most models need none."""


def forward_blocks(
    vit: Any, image: Float[Tensor, "b 3 h w"], out_indices: Sequence[int], norm: bool
) -> list[BlockOutput]:
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
    return [BlockOutput(*one) if has_prefix else BlockOutput(one, one[:, :0]) for one in found]


SUPPORTED_CLASSES = (VisionTransformer, Eva, Beit)
DEFAULT_ADAPTER = ModelAdapter(no_preparation, forward_blocks, factory.convert, blocks.block_functions)
BEIT_ADAPTER = ModelAdapter(beit.move_bias_to_blocks, beit.forward_blocks, beit.convert, beit.block_functions)
