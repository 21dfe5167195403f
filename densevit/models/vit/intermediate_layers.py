"""timm's and DINOv2's access to intermediate layers, attention weights and pruning.

b images, c channels, n = p + gh * gw tokens (p of them class and registers, in front), d channels.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError, DensevitError
from densevit.models.vit.attention import ALL_TOKENS


class BlockOutput(NamedTuple):
    """The tokens after one block."""

    patches: Float[Tensor, "b cells d"]  # row by row
    prefix: Float[Tensor, "b p d"]  # class token, then registers


def keep_patches(
    tokens: Float[Tensor, "b n d"], kept: Int64[Tensor, "b kept"], prefix_tokens: int
) -> Float[Tensor, "b visible d"]:
    """The prefix, and some patches of each image in the order of `kept`."""
    prefix, patches = tokens[:, :prefix_tokens], tokens[:, prefix_tokens:]
    return torch.cat([prefix, patches.gather(1, kept[..., None].expand(-1, -1, tokens.shape[-1]))], dim=1)


Layers = Sequence[int] | int | None
Form = Literal["NCHW", "NLC"]
Maps = list[Tensor] | list[tuple[Tensor, Tensor]]


def resolve_layers(layers: Layers, depth: int) -> list[int]:
    """0-based blocks, increasing. None means all, an int the last so many, -1 in a list the last. Raises ConfigError if
    there are no such blocks."""
    if layers is None:
        return list(range(depth))
    wanted = range(depth - layers, depth) if isinstance(layers, int) else layers
    chosen = sorted({index % depth for index in wanted if -depth <= index < depth})
    if not chosen or len(chosen) < len(wanted) or (isinstance(layers, int) and layers > depth):
        fit = f"different numbers from {-depth} to {depth - 1}, or how many of the last {depth}"
        raise ConfigError(f"layers {layers!r} do not fit; would fit: {fit}.")
    return chosen


class IntermediateLayersMixin(nn.Module):
    """Access to the blocks of a Vision Transformer."""

    patch_size: int  # pixels per token
    prefix_tokens: int  # class token and registers; the class token, if there is one, is the first
    has_class_token: bool
    checkpointing: bool  # activation checkpointing: blocks are recomputed in the backward pass
    blocks: nn.ModuleList
    norm: nn.Module

    @abstractmethod
    def embed(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]: ...

    def run_block(self, block: nn.Module, x: Float[Tensor, "b n d"], *mask: Tensor | None) -> Float[Tensor, "b n d"]:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, x, *mask, use_reentrant=False)
        return block(x, *mask)

    def split_prefix(self, tokens: Float[Tensor, "b n d"]) -> BlockOutput:
        return BlockOutput(tokens[:, self.prefix_tokens :], tokens[:, : self.prefix_tokens])

    def grid_of(self, image: Float[Tensor, "b c h w"]) -> tuple[int, int]:
        """Cells (gh, gw), padding included."""
        return -(-image.shape[-2] // self.patch_size), -(-image.shape[-1] // self.patch_size)

    def block_outputs(
        self, image: Float[Tensor, "b c h w"], indices: Layers, *, norm: bool = False
    ) -> list[BlockOutput]:
        """The tokens after the blocks `indices`, normalised by the final LayerNorm if `norm`."""
        return [self.split_prefix(tokens) for tokens in self.forward_blocks(image, indices, norm, stop_early=True)[1]]

    def forward_blocks(
        self, image: Float[Tensor, "b c h w"], indices: Layers, norm: bool, stop_early: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The tokens after the last block that ran, and those after the blocks `indices`; b n d each."""
        return self.run_blocks(self.embed(image), indices, norm, stop_early)

    def run_blocks(
        self, x: Float[Tensor, "b n d"], indices: Layers, norm: bool, stop_early: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """As `forward_blocks`, from embedded tokens."""
        wanted, found = resolve_layers(indices, len(self.blocks)), []
        for index, block in enumerate(self.blocks[: wanted[-1] + 1] if stop_early else self.blocks):
            x = self.run_block(block, x)
            if index in wanted:
                found.append(self.norm(x) if norm else x)
        return x, found

    def forward_intermediates(
        self,
        image: Float[Tensor, "b c h w"],
        indices: Layers = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: Form = "NCHW",
        intermediates_only: bool = False,
    ) -> Maps | tuple[Tensor, Maps]:
        """timm's `forward_intermediates`: final tokens and those after the blocks `indices`.

        Args:
            indices: 0-based; None for all, an int for the last so many.
            return_prefix_tokens: (patches, prefix) per block, not only patches.
            norm: apply the final LayerNorm to each.
            stop_early: do not run blocks after the last index; the final tokens are then that block's.
            output_fmt: patches as maps b d gh gw (NCHW) or as rows b cells d (NLC).
            intermediates_only: without the final tokens.
        """
        x, found = self.forward_blocks(image, indices, norm, stop_early)
        maps = self.as_maps(found, self.grid_of(image) if output_fmt == "NCHW" else None, return_prefix_tokens)
        return maps if intermediates_only else (self.norm(x), maps)

    def get_intermediate_layers(
        self,
        image: Float[Tensor, "b c h w"],
        n: Layers = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
    ) -> Maps:
        """DINOv2's name for `forward_intermediates`; with `reshape`, as maps."""
        _, found = self.forward_blocks(image, n, norm, stop_early=True)
        return self.as_maps(found, self.grid_of(image) if reshape else None, return_prefix_tokens)

    def as_maps(self, found: Sequence[Tensor], grid: tuple[int, int] | None, with_prefix: bool) -> Maps:
        """Patches as maps on `grid`, or as rows without; beside each the prefix, if wanted and there is one."""
        outputs = [self.split_prefix(tokens) for tokens in found]
        maps = [output.patches if grid is None else as_map(output.patches, grid) for output in outputs]
        if not (with_prefix and self.prefix_tokens):
            return maps
        return [(patches, output.prefix) for patches, output in zip(maps, outputs, strict=True)]

    def attention(
        self, image: Float[Tensor, "b c h w"], layers: Layers = None, queries: slice = ALL_TOKENS
    ) -> Iterator[Float[Tensor, "b heads q n"]]:
        """Attention weights (batch, heads, query, key) of the blocks `layers`, as an iterator; rows sum to one.
        `layers`: 0-based; None for all, an int for the last so many; `queries`: query tokens; `slice(1)` is the class
        token alone, which is cheap."""
        wanted = resolve_layers(layers, len(self.blocks))
        x = self.embed(image)
        for index, block in enumerate(self.blocks[: wanted[-1] + 1]):
            if index in wanted:
                yield block.attention(x, queries)  # type: ignore[operator]
            if index < wanted[-1]:
                x = self.run_block(block, x)

    def prune_intermediate_layers(
        self, indices: Layers = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Removes the blocks after the last of `indices`; returns these as 0-based numbers. `prune_norm`: remove the
        final LayerNorm, too; `prune_head`: remove pooling and classifier, if any."""
        kept = resolve_layers(indices, len(self.blocks))
        self.blocks = self.blocks[: kept[-1] + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.drop_head()
        return kept

    def drop_head(self) -> None:
        """Removes pooling and classifier; nothing here."""


def as_map(tokens: Float[Tensor, "b cells d"], grid: tuple[int, int]) -> Float[Tensor, "b d gh gw"]:
    """Tokens as a feature map: a view in channels-last memory."""
    if tokens.shape[1] != grid[0] * grid[1]:
        raise DensevitError(
            f"{tokens.shape[1]} patches are no {grid[0]}x{grid[1]} grid: patch dropout removed some; use eval() or NLC."
        )
    return tokens.reshape(tokens.shape[0], *grid, tokens.shape[-1]).permute(0, 3, 1, 2)
