"""The last blocks of timm's Vision Transformers as functions that take a decoder's query tokens.

b images, n tokens, d channels; `num_queries` query tokens stand between prefix and patches.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from timm.models import Eva
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from densevit.structures import BlockFunction

Tokens = Float[Tensor, "b n d"]
Mask = Bool[Tensor, "b 1 n n"]


def block_functions(vit: Any, first: int, grid: tuple[int, int]) -> tuple[BlockFunction, ...]:
    """The blocks from `first` on; `grid` of the patches, for rotary position embeddings."""
    ropes = rope_tables(vit, grid) if isinstance(vit, Eva) else [None] * len(vit.blocks)

    def step(index: int) -> BlockFunction:
        def run(x: Tokens, mask: Mask | None, num_queries: int) -> Tokens:
            rope = ropes[index]
            rotary: dict[str, Any] = {} if rope is None else {"rope": pad_rope(rope, num_queries)}
            if vit.grad_checkpointing and torch.is_grad_enabled():
                return checkpoint(vit.blocks[index], x, attn_mask=mask, use_reentrant=False, **rotary)
            return vit.blocks[index](x, attn_mask=mask, **rotary)

        return run

    return tuple(step(index) for index in range(first, len(vit.blocks)))


def rope_tables(vit: Any, grid: tuple[int, int]) -> list[Float[Tensor, "*heads cells r"] | None]:
    """Rotary position embeddings of each block; None for models without (EVA-02 has them, EVA does not)."""
    if vit.rope is None:
        return [None] * len(vit.blocks)
    tables = vit.rope.get_embed(shape=grid)
    return list(tables) if getattr(vit, "rope_mixed", False) else [tables] * len(vit.blocks)


def pad_rope(rope: Float[Tensor, "*heads cells r"], num_queries: int) -> Float[Tensor, "*heads n r"]:
    """Rotary embeddings for queries and patches; queries are not rotated (sine 0, cosine 1)."""
    sines, cosines = rope[..., :1, :].chunk(2, dim=-1)
    identity = torch.cat([torch.zeros_like(sines), torch.ones_like(cosines)], dim=-1)
    return torch.cat([identity.expand(*identity.shape[:-2], num_queries, -1), rope], dim=-2)
