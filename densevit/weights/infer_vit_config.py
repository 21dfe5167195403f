"""Options of the encoder `vit` from the shapes of its tensors."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from densevit.errors import CheckpointError

STEM = "encoder.vit."
HEAD_DIM = 64  # channels of an attention head in every published ViT, from S to 7B


def vit_options(
    tensors: Mapping[str, Tensor], source: object, *, gated: bool = False, heads: int = 0
) -> dict[str, Any]:
    """Options of the encoder `vit` for tensors under its names. Raises CheckpointError if a tensor is missing, position
    embeddings of no square grid, or channels not a multiple of 64.

    Args:
        source: the file, for error messages.
        gated: whether its MLPs are packed SwiGLUs.
        heads: number of attention heads, which shapes do not tell; 0 for heads of 64 channels.
    """
    patch = shape(tensors, "patch_embed.proj.weight", source)
    positions = shape(tensors, "pos_embed", source)
    hidden = shape(tensors, "blocks.0.mlp.fc1.weight", source)[0]
    dim, side = patch[0], round((positions[1] - 1) ** 0.5)
    if side**2 != positions[1] - 1:
        raise CheckpointError(f"{source}: its {positions[1]} position embeddings are no class token and a square grid.")
    if not heads and dim % HEAD_DIM:
        raise CheckpointError(f"{source}: {dim} channels; published ViTs have multiples of {HEAD_DIM}, as 384 or 768.")
    return {
        "type": "vit",
        "dim": dim,
        "depth": num_blocks(tensors),
        "heads": heads or dim // HEAD_DIM,
        "patch_size": patch[-1],
        "image_size": side * patch[-1],
        "mlp": "swiglu_packed" if gated else "gelu",
        # The encoder rounds dim * mlp_ratio down; the half keeps fractional ratios from rounding to one less.
        "mlp_ratio": hidden / dim if hidden % dim == 0 else (hidden + 0.5) / dim,
        "layer_scale": 1.0 if f"{STEM}blocks.0.ls1.gamma" in tensors else None,
    }


def shape(tensors: Mapping[str, Tensor], name: str, source: object) -> tuple[int, ...]:
    if STEM + name not in tensors:
        raise CheckpointError(f"{source}: has no {name} where its encoder should be.")
    return tuple(tensors[STEM + name].shape)


def num_blocks(tensors: Mapping[str, Tensor], prefix: str = f"{STEM}blocks.") -> int:
    found = (re.match(rf"{re.escape(prefix)}(\d+)\.", name) for name in tensors)
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def four_even_blocks(depth: int) -> tuple[int, ...]:
    """The last blocks of four equal parts: 5, 11, 17 and 23 of 24."""
    return tuple(depth * i // 4 - 1 for i in range(1, 5))
