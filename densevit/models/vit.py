"""The Vision Transformer (Dosovitskiy et al. 2021): an image becomes a grid of tokens, and blocks let them talk.

b images, n = p + gh * gw tokens (p of them class and registers, in front), d channels. Parameters bear timm's
names, so that timm's weights load by name.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError
from densevit.models.blocks import EPS, Block
from densevit.models.norms import LayerNorm2d
from densevit.models.positions import Resampling, resample, sincos


class Tap(NamedTuple):
    """The tokens behind one block."""

    patches: Float[Tensor, "b cells d"]  # row by row
    prefix: Float[Tensor, "b p d"]  # class token, then registers


class PatchEmbed(nn.Module):
    """Cuts an image into patches and maps each to a token: a convolution whose stride is its kernel."""

    def __init__(self, dim: int, patch_size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch_size, stride=patch_size)

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d gh gw"]:
        return self.proj(image)


class ConvStem(PatchEmbed):
    """Halves the image until a pixel is a patch: trains faster from scratch (Xiao et al. 2021)."""

    def __init__(self, dim: int, patch_size: int) -> None:
        nn.Module.__init__(self)
        steps = int(math.log2(patch_size))
        if 2**steps != patch_size:
            raise ConfigError(f"stem 'conv' halves the image, so patch_size must be a power of two, not {patch_size}.")
        widths = [3, *(max(dim // 2 ** (steps - 1 - i), 16) for i in range(steps))]
        halvings = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), LayerNorm2d(b), nn.GELU())
            for a, b in pairwise(widths)
        ]
        self.proj = nn.Sequential(*halvings, nn.Conv2d(widths[-1], dim, 1))  # type: ignore[assignment]


STEMS = {"patch": PatchEmbed, "conv": ConvStem}


class VisionTransformer(nn.Module):
    """Tokens from images of any size that is a multiple of the patch."""

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        patch_size: int,
        *,
        grid: tuple[int, int] = (14, 14),
        mlp_ratio: float = 4.0,
        class_token: bool = True,
        registers: int = 0,
        no_embed_class: bool = False,
        positions: Literal["learned", "sincos"] = "learned",
        resampling: Resampling = "antialias",
        stem: Literal["patch", "conv"] = "patch",
        qkv_bias: bool = True,
        qk_norm: bool = False,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
    ) -> None:
        """
        Args:
            grid: cells (h, w) on which position embeddings live; other grids get them resampled.
            registers: spare tokens that keep global thoughts out of the patches (Darcet et al. 2024).
            no_embed_class: only patches have positions (as in timm's DINOv2 with registers).
            positions: what they are at first; they learn either way.
            drop_path: rate at the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        self.patch_size, self.grid, self.resampling = patch_size, grid, resampling
        self.prefix_tokens = int(class_token) + registers
        self.placed_prefix = 0 if no_embed_class else self.prefix_tokens
        self.checkpointing = False

        self.patch_embed = STEMS[stem](dim, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, registers, dim)) if registers else None
        self.pos_embed = nn.Parameter(torch.zeros(1, self.placed_prefix + grid[0] * grid[1], dim))
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                qk_norm=qk_norm,
                layer_scale=layer_scale,
                drop_path=drop_path * i / max(depth - 1, 1),
            )
            for i in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.initialise(positions)

    def initialise(self, positions: Literal["learned", "sincos"] = "learned") -> None:
        """Small weights, zero biases; the patch embedding keeps torch's own, which suits its fan-in."""
        for module in self.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for token in (self.cls_token, self.reg_token):
            if token is not None:
                nn.init.normal_(token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if positions == "sincos":
            with torch.no_grad():
                self.pos_embed[:, self.placed_prefix :] = sincos(self.pos_embed.shape[-1], self.grid)

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n d"]:
        x = self.embed(image)
        for block in self.blocks:
            x = self.run(block, x)
        return self.norm(x)

    def forward_intermediates(
        self, image: Float[Tensor, "b 3 h w"], indices: Sequence[int], *, norm: bool = False
    ) -> list[Tap]:
        """The tokens behind the blocks `indices`; with `norm`, each under the final LayerNorm."""
        x, taps = self.embed(image), []
        for index, block in enumerate(self.blocks[: max(indices) + 1]):
            x = self.run(block, x)
            if index in indices:
                tokens = self.norm(x) if norm else x
                taps.append(Tap(tokens[:, self.prefix_tokens :], tokens[:, : self.prefix_tokens]))
        return taps

    def embed(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n d"]:
        """Patches to tokens, each told where it is; class and registers in front."""
        x = self.patch_embed(image)
        grid = (x.shape[-2], x.shape[-1])
        x = x.flatten(2).transpose(1, 2)
        prefix = [token.expand(len(x), -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        positions = self.positions(grid)
        if self.placed_prefix:
            return torch.cat([*prefix, x], dim=1) + positions
        return torch.cat([*prefix, x + positions], dim=1)

    def positions(self, grid: tuple[int, int]) -> Float[Tensor, "1 placed d"]:
        prefix, cells = self.pos_embed[:, : self.placed_prefix], self.pos_embed[:, self.placed_prefix :]
        return torch.cat([prefix, resample(cells, self.grid, grid, self.resampling)], dim=1)

    def run(self, block: nn.Module, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, x, use_reentrant=False)
        return block(x)
