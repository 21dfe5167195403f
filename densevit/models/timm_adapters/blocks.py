"""The last blocks of timm's Vision Transformers, run one by one with a decoder's tokens among theirs.

b images, n tokens, d channels; `guests` are the decoder's tokens, between prefix and patches.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from timm.models import Eva
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from densevit.structures import Step

Tokens = Float[Tensor, "b n d"]
Mask = Bool[Tensor, "b 1 n n"]


def block_functions(vit: Any, first: int, grid: tuple[int, int]) -> tuple[Step, ...]:
    """The blocks from `first` on; `grid` is that of the patches, whose places rotary embeddings turn."""
    ropes = rotations(vit, grid) if isinstance(vit, Eva) else [None] * len(vit.blocks)

    def step(index: int) -> Step:
        def run(x: Tokens, mask: Mask | None, guests: int) -> Tokens:
            rope = ropes[index]
            placed: dict[str, Any] = {} if rope is None else {"rope": among_guests(rope, guests)}
            if vit.grad_checkpointing and torch.is_grad_enabled():
                return checkpoint(vit.blocks[index], x, attn_mask=mask, use_reentrant=False, **placed)
            return vit.blocks[index](x, attn_mask=mask, **placed)

        return run

    return tuple(step(index) for index in range(first, len(vit.blocks)))


def rotations(vit: Any, grid: tuple[int, int]) -> list[Float[Tensor, "*heads cells r"] | None]:
    """Each block's table of sines and cosines; None where a model has none (EVA-02 has, EVA has not)."""
    if vit.rope is None:
        return [None] * len(vit.blocks)
    tables = vit.rope.get_embed(shape=grid)
    return list(tables) if getattr(vit, "rope_mixed", False) else [tables] * len(vit.blocks)


def among_guests(rope: Float[Tensor, "*heads cells r"], guests: int) -> Float[Tensor, "*heads n r"]:
    """Rotations for guests and patches: guests are nowhere, and are turned by nothing (sine 0, cosine 1)."""
    sines, cosines = rope[..., :1, :].chunk(2, dim=-1)
    still = torch.cat([torch.zeros_like(sines), torch.ones_like(cosines)], dim=-1)
    return torch.cat([still.expand(*still.shape[:-2], guests, -1), rope], dim=-2)
