"""The Vision Transformer (Dosovitskiy et al. 2021).

b images, c channels, n = p + gh * gw tokens (p of them class and register tokens, first), d channels. Parameters have
timm's names, so that timm's weights load by name.
"""

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple, Unpack

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError, DensevitError
from densevit.models.vit.block import EPS, Block, BlockOptions
from densevit.models.vit.embeddings import STEMS, Positions, Resampling, resample_pos_embed, sincos_pos_embed
from densevit.models.vit.init_weights import Init, initialise, rescale_by_depth


class ViTSize(NamedTuple):
    dim: int
    depth: int
    heads: int


SIZES = {
    "nano": ViTSize(32, 2, 2),  # for tests and images of 8 pixels
    "mini": ViTSize(64, 4, 4),  # for digits of 28 pixels, with patches of 4
    "tiny": ViTSize(192, 12, 3),
    "small": ViTSize(384, 12, 6),
    "base": ViTSize(768, 12, 12),
    "large": ViTSize(1024, 24, 16),
    "huge": ViTSize(1280, 32, 16),
    "giant": ViTSize(1536, 40, 24),
}


def choose_grid(image_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Return the cells (h, w) that cover an image. Raises ConfigError if the image is smaller than a patch."""
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(h, w) < patch_size:
        raise ConfigError(f"encoder.image_size: {h}x{w} holds no patch of {patch_size}x{patch_size}.")
    return -(-h // patch_size), -(-w // patch_size)


class BlockOutput(NamedTuple):
    """The tokens after one block."""

    patches: Float[Tensor, "b cells d"]  # row by row
    prefix: Float[Tensor, "b p d"]  # class token, then registers


def keep_patches(
    tokens: Float[Tensor, "b n d"], kept: Int64[Tensor, "b kept"], prefix_tokens: int
) -> Float[Tensor, "b visible d"]:
    """Return the prefix, and some patches of each image in the order of `kept`."""
    prefix, patches = tokens[:, :prefix_tokens], tokens[:, prefix_tokens:]
    return torch.cat([prefix, patches.gather(1, kept[..., None].expand(-1, -1, tokens.shape[-1]))], dim=1)


def as_map(tokens: Float[Tensor, "b cells d"], grid: tuple[int, int]) -> Float[Tensor, "b d gh gw"]:
    """Return the tokens as a feature map: a view in channels-last memory."""
    if tokens.shape[1] != grid[0] * grid[1]:
        raise DensevitError(f"{tokens.shape[1]} patches are no {grid[0]}x{grid[1]} grid.")
    return tokens.reshape(tokens.shape[0], *grid, tokens.shape[-1]).permute(0, 3, 1, 2)


__all__ = ["BlockOutput", "VisionTransformer"]


class VisionTransformer(nn.Module):
    """A Vision Transformer that returns tokens, for images of any size.

    Attributes:
        grid: cells (h, w) of the position embeddings.
        prefix_tokens: number of class and register tokens.
        num_prefix_positions: how many of these have position embeddings.
        checkpointing: activation checkpointing: blocks are recomputed in the backward pass.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        patch_size: int,
        *,
        grid: tuple[int, int] = (14, 14),
        channels: int = 3,
        class_token: bool = True,
        registers: int = 0,
        no_embed_class: bool = False,
        positions: Positions = "learned",
        pos_embed_interpolation: Resampling = "antialias",
        stem: Literal["patch", "conv"] = "patch",
        norm_pre: bool = False,
        pos_drop: float = 0.0,
        drop_path: float = 0.0,
        init: Init = "",
        fix_init: bool = False,
        **block: Unpack[BlockOptions],
    ) -> None:
        """
        Args:
            grid: cells (h, w) of the position embeddings; interpolated for other grids.
            registers: number of register tokens (Darcet et al. 2024).
            no_embed_class: only patches have positions (as in timm's DINOv2 with registers).
            positions: initialisation of the position embeddings, which are always learned.
            norm_pre: a LayerNorm before the first block, as CLIP's ln_pre, and no bias in the patch embedding.
            pos_drop: rate of dropout on the embedded tokens.
            drop_path: stochastic depth rate of the last block; linear from 0 at the first.
        """
        super().__init__()
        eps = block.get("eps", EPS)
        self.dim, self.patch_size, self.grid = dim, patch_size, grid
        self.pos_embed_interpolation = pos_embed_interpolation
        self.prefix_tokens = int(class_token) + registers
        self.num_prefix_positions = 0 if no_embed_class else self.prefix_tokens
        self.mlp = block.get("mlp", "gelu")
        self.checkpointing = False

        self.patch_embed = STEMS[stem](dim, patch_size, channels=channels, bias=not norm_pre)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, registers, dim)) if registers else None
        self.pos_embed = nn.Parameter(torch.zeros(1, self.num_prefix_positions + grid[0] * grid[1], dim))
        self.pos_drop = nn.Dropout(pos_drop)
        self.norm_pre = nn.LayerNorm(dim, eps=eps) if norm_pre else nn.Identity()
        self.blocks = nn.ModuleList(
            Block(dim, heads, drop_path=drop_path * i / max(depth - 1, 1), **block) for i in range(depth)
        )
        self.norm: nn.Module = nn.LayerNorm(dim, eps=eps)
        self.init_tokens(positions)
        initialise(self, init)
        if fix_init:
            rescale_by_depth(self.blocks)

    @torch.no_grad()
    def init_tokens(self, positions: Positions) -> None:
        if positions == "zeros":
            nn.init.zeros_(self.pos_embed)
        elif positions == "random":
            nn.init.normal_(self.pos_embed)
        else:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if positions == "sincos":
            self.pos_embed[:, self.num_prefix_positions :] = sincos_pos_embed(self.dim, self.grid)
        for token in (self.cls_token, self.reg_token):
            if token is not None:
                nn.init.normal_(token, std=1e-6)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        x = self.embed(image)
        for block in self.blocks:
            x = self.run_block(block, x)
        return self.norm(x)

    def embed(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """Return the tokens with position embeddings, class and register tokens first."""
        return self.embed_patches(self.patch_embed(image))

    def embed_patches(self, x: Float[Tensor, "b d gh gw"]) -> Float[Tensor, "b n d"]:
        grid = (x.shape[-2], x.shape[-1])
        x = x.flatten(2).transpose(1, 2)
        prefix = [token.expand(x.shape[0], -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        positions = self.positions(grid)
        if self.num_prefix_positions:
            x = torch.cat([*prefix, x], dim=1) + positions
        else:
            x = torch.cat([*prefix, x + positions], dim=1)
        return self.norm_pre(self.pos_drop(x))

    def positions(self, grid: tuple[int, int]) -> Float[Tensor, "1 placed d"]:
        if grid == self.grid:
            return self.pos_embed
        prefix, cells = self.pos_embed[:, : self.num_prefix_positions], self.pos_embed[:, self.num_prefix_positions :]
        return torch.cat([prefix, resample_pos_embed(cells, self.grid, grid, self.pos_embed_interpolation)], dim=1)

    def run_block(self, block: nn.Module, x: Float[Tensor, "b n d"], *mask: Tensor | None) -> Float[Tensor, "b n d"]:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, x, *mask, use_reentrant=False)
        return block(x, *mask)

    def block_outputs(
        self, image: Float[Tensor, "b c h w"], indices: Collection[int], *, norm: bool = False
    ) -> list[BlockOutput]:
        """Return the tokens after the blocks `indices`, normalised by the final LayerNorm if `norm`; no later block
        runs."""
        return self.run_blocks(self.embed(image), indices, norm)

    def run_blocks(self, x: Float[Tensor, "b n d"], indices: Collection[int], norm: bool) -> list[BlockOutput]:
        """Run the blocks as `block_outputs` does, from embedded tokens."""
        outputs = []
        for index, block in enumerate(self.blocks[: max(indices) + 1]):
            x = self.run_block(block, x)
            if index in indices:
                tokens = self.norm(x) if norm else x
                outputs.append(BlockOutput(tokens[:, self.prefix_tokens :], tokens[:, : self.prefix_tokens]))
        return outputs

    def attention(self, image: Float[Tensor, "b c h w"]) -> Iterator[Float[Tensor, "b heads n n"]]:
        """Yield the attention weights (batch, heads, query, key) of each block, as an iterator; rows sum to one."""
        x = self.embed(image)
        for index, block in enumerate(self.blocks):
            yield block.attention(x)  # type: ignore[operator]
            if index + 1 < len(self.blocks):
                x = self.run_block(block, x)

    def no_weight_decay(self) -> set[str]:
        """Return the names of the parameters that are not decayed: tokens and position embeddings."""
        return {name for name in ("cls_token", "reg_token", "pos_embed") if getattr(self, name) is not None}
