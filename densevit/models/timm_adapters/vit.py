"""Builds and runs timm's Vision Transformers; imported, as timm is, when one is built.

b images, h x w pixels, n tokens, d channels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from timm.layers.pos_embed_sincos import RotaryEmbeddingDinoV3
from timm.models import Beit, Eva, VisionTransformer
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError
from densevit.models.timm_adapters import beit, factory
from densevit.models.vit.vision_transformer import BlockOutput, keep_patches
from densevit.ops.resize import is_symbolic
from densevit.structures import BlockFunction


class ModelAdapter(NamedTuple):
    """How one class of timm models is run and loaded."""

    forward_blocks: Callable[[Any, Tensor, Sequence[int], bool], list[BlockOutput]]
    convert: Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]
    block_functions: Callable[[Any, int, tuple[int, int]], tuple[BlockFunction, ...]]
    visible_tokens: Callable[[Any, Tensor, Tensor], Tensor]


def create(name: str, with_weights: bool, kwargs: Mapping[str, Any]) -> Any:
    """Return a timm model that takes any image size and has no classifier. `kwargs`: arguments of `timm.create_model`.
    Raises ConfigError: no such model, one without plain tokens, or arguments it does not take. Raises CheckpointError:
    weights that are neither in a cache nor reachable."""
    cfg = factory.pretrained_cfg_of(name)
    meta_model = factory.create_on_meta(name, kwargs)
    if not isinstance(meta_model, SUPPORTED_CLASSES):
        kinds = "DINOv2, DINOv3, AugReg, DeiT, CLIP, SigLIP, MAE, BEiT or EVA"
        raise ConfigError(
            f"encoder.name: '{name}' is a {type(meta_model).__name__}, not a plain grid of tokens; use a ViT: {kinds}."
        )
    is_beit = isinstance(meta_model, Beit)
    vit = factory.create_model(name, cfg, with_weights, kwargs if is_beit else {**kwargs, "dynamic_img_size": True})
    vit.prune_intermediate_layers(len(vit.blocks), prune_head=True)
    cache_rope(vit)
    if with_weights and getattr(vit, "pos_embed", None) is not None:
        vit.pos_embed.data = factory.on_grid(vit, vit.pos_embed.data)
    if is_beit:
        beit.move_bias_to_blocks(vit)
    return vit


def square_patch_size(vit: Any, name: str) -> int:
    h, w = vit.patch_embed.feat_ratio(as_scalar=False)
    if h != w:
        raise ConfigError(f"encoder.name: '{name}' has patches of {h}x{w}; use one with square patches.")
    return int(h)


def adapter_for(vit: Any) -> ModelAdapter:
    return BEIT_ADAPTER if isinstance(vit, Beit) else DEFAULT_ADAPTER


class CachedRope(RotaryEmbeddingDinoV3):
    """DINOv3's rotary embedding, kept for the grids that came last.

    timm makes its grid on the CPU in each forward pass and copies it to the GPU, which the host waits for.
    """

    def get_embed(self, shape: Sequence[int] | None = None, dtype: torch.dtype | None = None) -> Tensor:
        size = None if shape is None else list(shape)
        random = self.training and self.aug_active  # shifts and scales
        if size is None or random:
            return super().get_embed(size, dtype)
        if is_symbolic(*size) and (self.normalize_coords, self.grid_indexing) == ("separate", "ij"):
            return self.symbolic_embed(size)
        # What is made in inference mode cannot be trained with.
        key = (*size, dtype, self.periods.device, torch.is_inference_mode_enabled())
        cache: dict[Any, Tensor] = self.__dict__.setdefault("_kept", {})
        if key not in cache:
            while len(cache) >= MAX_GRIDS:
                del cache[next(iter(cache))]
            cache[key] = super().get_embed(size, dtype)
        return cache[key]

    def symbolic_embed(self, size: Sequence[int]) -> Float[Tensor, "cells r"]:
        """Return `get_embed` in a graph for images of any size, where timm's own grid would be that of the example."""
        sides = [
            (torch.arange(side, dtype=torch.float32) + (0.5 + self.grid_offset)) / torch.scalar_tensor(side)
            for side in size
        ]
        coords = 2 * torch.stack(torch.meshgrid(sides, indexing="ij"), dim=-1).flatten(0, 1) - 1
        return torch.cat(self._get_pos_embed_from_coords(coords), dim=-1)


def cache_rope(vit: Any) -> None:
    if type(getattr(vit, "rope", None)) is RotaryEmbeddingDinoV3:
        vit.rope.__class__ = CachedRope


def forward_blocks(
    vit: Any, image: Float[Tensor, "b 3 h w"], out_indices: Sequence[int], norm: bool
) -> list[BlockOutput]:
    has_prefix = vit.num_prefix_tokens > 0
    outputs = vit.forward_intermediates(
        image,
        indices=list(out_indices),
        norm=norm,
        return_prefix_tokens=has_prefix,
        stop_early=True,
        output_fmt="NLC",
        intermediates_only=True,
    )
    return [BlockOutput(*one) if has_prefix else BlockOutput(one, one[:, :0]) for one in outputs]


Tokens = Float[Tensor, "b n d"]
Mask = Bool[Tensor, "b 1 n n"]


def block_functions(vit: Any, first: int, grid: tuple[int, int]) -> tuple[BlockFunction, ...]:
    """Return the blocks from `first` on; `grid` of the patches, for rotary position embeddings.

    They take `num_queries` query tokens of a decoder between prefix and patches.
    """
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
    """Return the rotary position embeddings of each block; None for models without (EVA-02 has them, EVA does not)."""
    if vit.rope is None:
        return [None] * len(vit.blocks)
    tables = vit.rope.get_embed(shape=grid)
    return list(tables) if getattr(vit, "rope_mixed", False) else [tables] * len(vit.blocks)


def pad_rope(rope: Float[Tensor, "*heads cells r"], num_queries: int) -> Float[Tensor, "*heads n r"]:
    """Return the rotary embeddings for queries and patches; queries are not rotated (sine 0, cosine 1)."""
    sines, cosines = rope[..., :1, :].chunk(2, dim=-1)
    identity = torch.cat([torch.zeros_like(sines), torch.ones_like(cosines)], dim=-1)
    return torch.cat([identity.expand(*identity.shape[:-2], num_queries, -1), rope], dim=-2)


def visible_tokens(vit: Any, image: Float[Tensor, "b 3 h w"], kept: Int64[Tensor, "b kept"]) -> Tokens:
    """Return the prefix and kept patches after all blocks and the norm; the other patches never enter a block."""
    x = vit.patch_embed(image)
    grid = (x.shape[1], x.shape[2])  # dynamic_img_size: b h w d
    rotary = isinstance(vit, Eva)
    x = vit._pos_embed(x)[0] if rotary else vit._pos_embed(x)
    x = keep_patches(x, kept, vit.num_prefix_tokens)
    x = vit.norm_pre(x) if hasattr(vit, "norm_pre") else x
    ropes = rope_tables(vit, grid) if rotary else [None] * len(vit.blocks)
    for block, rope in zip(vit.blocks, ropes, strict=True):
        kwargs: dict[str, Any] = {} if rope is None else {"rope": keep_rope(rope, kept)}
        if vit.grad_checkpointing and torch.is_grad_enabled():
            x = checkpoint(block, x, use_reentrant=False, **kwargs)
        else:
            x = block(x, **kwargs)
    return vit.norm(x)


def keep_rope(
    rope: Float[Tensor, "*heads cells r"], kept: Int64[Tensor, "b kept"]
) -> Float[Tensor, "b heads_or_1 kept r"]:
    """Return the rotary embeddings of each image's kept patches."""
    selected = rope[..., kept, :]
    return selected[:, None] if rope.ndim == 2 else selected.transpose(0, 1)


def all_patches_needed(vit: Any, image: Tensor, kept: Tensor) -> Tensor:
    raise AssertionError("check_visible_tokens has refused it")


MAX_GRIDS = 4  # of rotary embeddings that are kept
SUPPORTED_CLASSES = (VisionTransformer, Eva, Beit)
DEFAULT_ADAPTER = ModelAdapter(forward_blocks, factory.convert, block_functions, visible_tokens)
BEIT_ADAPTER = ModelAdapter(beit.forward_blocks, beit.convert, beit.block_functions, all_patches_needed)
