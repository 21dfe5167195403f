"""The Vision Transformer (Dosovitskiy et al. 2021): an image becomes a grid of tokens, and blocks let them talk.

b images, c channels, n = p + gh * gw tokens (p of them class and registers, in front), d channels. Parameters bear
timm's names, so that timm's weights load by name.
"""

from typing import Literal, Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.models.vit.attention import EPS
from densevit.models.vit.block import Block, BlockOptions, PostNormBlock
from densevit.models.vit.init_weights import Init, initialise, rescale_by_depth
from densevit.models.vit.intermediate_layers import BlockOutput, IntermediateLayersMixin
from densevit.models.vit.patch_embed import STEMS, PatchDropout
from densevit.models.vit.pos_embed import Positions, Resampling, resample, sincos

__all__ = ["BlockOutput", "VisionTransformer"]


class VisionTransformer(IntermediateLayersMixin):
    """Tokens from images of any size.

    Attributes:
        grid: cells (h, w) on which the position embeddings live.
        prefix_tokens: class token and registers.
        placed_prefix: how many of these have positions.
        checkpointing: whether the backward pass computes blocks anew instead of remembering them.
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
        pad: bool = False,
        norm_pre: bool = False,
        final_norm: bool = True,
        post_norm: bool = False,
        pos_drop: float = 0.0,
        patch_drop: float = 0.0,
        drop_path: float = 0.0,
        init: Init = "",
        fix_init: bool = False,
        **block: Unpack[BlockOptions],
    ) -> None:
        """
        Args:
            grid: cells (h, w) on which position embeddings live; other grids get them resampled.
            registers: spare tokens that keep global thoughts out of the patches (Darcet et al. 2024).
            no_embed_class: only patches have positions (as in timm's DINOv2 with registers).
            positions: what they are at first; they learn either way.
            pad: fill images up to a multiple of the patch; otherwise other sizes are refused.
            norm_pre: a LayerNorm before the first block, as CLIP's ln_pre, in place of the patch embedding's bias.
            final_norm: the LayerNorm behind the last block (CLIP's ln_post).
            post_norm: normalise behind each branch, not before it.
            pos_drop: rate of dropout on the embedded tokens.
            patch_drop: share of the patches that training leaves out, others in each image.
            drop_path: rate at the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        eps = block.get("eps", EPS)
        self.dim, self.patch_size, self.grid, self.pos_embed_interpolation = (
            dim,
            patch_size,
            grid,
            pos_embed_interpolation,
        )
        self.has_class_token = class_token
        self.prefix_tokens = int(class_token) + registers
        self.placed_prefix = 0 if no_embed_class else self.prefix_tokens
        self.mlp = block.get("mlp", "gelu")
        self.checkpointing = False

        self.patch_embed = STEMS[stem](dim, patch_size, channels=channels, bias=not norm_pre, pad=pad)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, registers, dim)) if registers else None
        self.pos_embed = nn.Parameter(torch.zeros(1, self.placed_prefix + grid[0] * grid[1], dim))
        self.pos_drop = nn.Dropout(pos_drop)
        self.patch_drop = PatchDropout(patch_drop, self.prefix_tokens) if patch_drop else nn.Identity()
        self.norm_pre = nn.LayerNorm(dim, eps=eps) if norm_pre else nn.Identity()
        kind = PostNormBlock if post_norm else Block
        self.blocks = nn.ModuleList(
            kind(dim, heads, drop_path=drop_path * i / max(depth - 1, 1), **block) for i in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=eps) if final_norm else nn.Identity()
        self.initialise(init, positions, fix_init=fix_init)

    def initialise(self, init: Init = "", positions: Positions = "learned", *, fix_init: bool = False) -> None:
        """Starts every layer anew, in one of timm's modes; see `vit_init`."""
        self.start_tokens(positions)
        initialise(self, init)
        if fix_init:
            rescale_by_depth(self.blocks)

    @torch.no_grad()
    def start_tokens(self, positions: Positions) -> None:
        if positions == "zeros":
            nn.init.zeros_(self.pos_embed)
        elif positions == "random":
            nn.init.normal_(self.pos_embed)
        else:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if positions == "sincos":
            self.pos_embed[:, self.placed_prefix :] = sincos(self.dim, self.grid)
        for token in (self.cls_token, self.reg_token):
            if token is not None:
                nn.init.normal_(token, std=1e-6)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        x = self.embed(image)
        for block in self.blocks:
            x = self.run(block, x)
        return self.norm(x)

    def embed(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """Patches to tokens, each told where it is; class and registers in front."""
        x = self.patch_embed(image)
        grid = (x.shape[-2], x.shape[-1])
        x = x.flatten(2).transpose(1, 2)
        prefix = [token.expand(x.shape[0], -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        positions = self.positions(grid)
        if self.placed_prefix:
            x = torch.cat([*prefix, x], dim=1) + positions
        else:
            x = torch.cat([*prefix, x + positions], dim=1)
        return self.norm_pre(self.patch_drop(self.pos_drop(x)))

    def positions(self, grid: tuple[int, int]) -> Float[Tensor, "1 placed d"]:
        if grid == self.grid:
            return self.pos_embed
        prefix, cells = self.pos_embed[:, : self.placed_prefix], self.pos_embed[:, self.placed_prefix :]
        return torch.cat([prefix, resample(cells, self.grid, grid, self.pos_embed_interpolation)], dim=1)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Every parameter once, from the input (patches, tokens, positions) over the blocks to the output."""
        blocks = [list(block.parameters()) for block in self.blocks]
        blocks[-1] += self.norm.parameters()  # as timm groups them
        stem_names = ("cls_token", "reg_token", "pos_embed", "patch_embed.", "norm_pre.")
        stem = [parameter for name, parameter in self.named_parameters() if name.startswith(stem_names)]
        known = {id(parameter) for group in [stem, *blocks] for parameter in group}
        head = [parameter for parameter in self.parameters() if id(parameter) not in known]
        return [stem, *blocks, *([head] if head else [])]

    def no_weight_decay(self) -> set[str]:
        """Names of the tokens and position embeddings, which get no weight decay (as in timm)."""
        return {name for name in ("cls_token", "reg_token", "pos_embed") if getattr(self, name) is not None}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Trades time for memory: blocks are recomputed in the backward pass."""
        self.checkpointing = enable
