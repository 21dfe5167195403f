"""BEiT on any grid. b images, n tokens (class token first), d channels, p x p offsets between cells.

BEiT (Bao et al. 2022) has relative position biases for one fixed window. timm keeps that window; here the table of
every block is interpolated to the grid of the image.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError
from densevit.models.vit.vision_transformer import BlockOutput
from densevit.structures import BlockFunction

TABLE = "relative_position_bias_table"
CLASS_OFFSETS = 3  # at the table's end: class to token, token to class, class to itself


def move_bias_to_blocks(vit: Any) -> None:
    """Move each bias table from the attention to its block, so that `forward_blocks` can interpolate it."""
    vit.patch_embed.strict_img_size = False
    for block in vit.blocks:
        setattr(block, TABLE, getattr(block.attn, TABLE))
        setattr(block.attn, TABLE, None)


def convert(vit: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a timm or original state dict, with tables named as by `move_bias_to_blocks` and for this model's
    window."""
    window = vit.patch_embed.grid_size
    weights = {name: tensor for name, tensor in state.items() if not name.endswith("relative_position_index")}
    renamed = {name.replace(f".attn.{TABLE}", f".{TABLE}"): tensor for name, tensor in weights.items()}
    tables = {name: tensor for name, tensor in renamed.items() if name.endswith(TABLE)}
    for name, table in tables.items():
        side = round((len(table) - CLASS_OFFSETS) ** 0.5)
        if side**2 + CLASS_OFFSETS == len(table):  # otherwise it is converted already, or the loader reports the shapes
            renamed[name] = resample_bias_table(table, ((side + 1) // 2, (side + 1) // 2), window)
    return renamed


def timm_name(name: str) -> str:
    """Return what timm calls a tensor that `move_bias_to_blocks` has moved; other names stay."""
    return re.sub(rf"(blocks\.\d+)\.{TABLE}", rf"\1.attn.{TABLE}", name)


def forward_blocks(
    vit: Any, image: Float[Tensor, "b 3 h w"], out_indices: Sequence[int], norm: bool
) -> list[BlockOutput]:
    x = vit.patch_embed(image)
    x = torch.cat([vit.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
    grid = vit.patch_embed.dynamic_feat_size(image.shape[-2:])
    offsets, outputs = relative_position_index(grid, image.device), []
    for i, block in enumerate(vit.blocks):
        table = resample_bias_table(getattr(block, TABLE), vit.patch_embed.grid_size, grid)
        bias = table[offsets].permute(2, 0, 1)[None]  # 1 heads n n
        if vit.grad_checkpointing and torch.is_grad_enabled():
            x = checkpoint(block, x, shared_rel_pos_bias=bias, use_reentrant=False)
        else:
            x = block(x, shared_rel_pos_bias=bias)
        if i in out_indices:
            tokens = vit.norm(x) if norm else x
            outputs.append(BlockOutput(tokens[:, 1:], tokens[:, :1]))
    return outputs


def block_functions(vit: Any, first: int, grid: tuple[int, int]) -> tuple[BlockFunction, ...]:
    """Raise ConfigError: always; relative positions exist only for patches and class token."""
    raise ConfigError("decoder: it adds queries to the encoder's last blocks, which BEiT cannot take; use another ViT.")


def resample_bias_table(
    table: Float[Tensor, "_ heads"], before: tuple[int, int], after: tuple[int, int]
) -> Float[Tensor, "_ heads"]:
    """Interpolate the 2h - 1 by 2w - 1 offsets of a window of h x w cells; the class token's are kept.

    Bilinear, as MiDaS runs BEiT at other sizes.
    """
    if before == after:
        return table
    (h, w), (height, width) = before, after
    image = table[:-CLASS_OFFSETS].float().T.reshape(1, -1, 2 * h - 1, 2 * w - 1)
    image = F.interpolate(image, size=(2 * height - 1, 2 * width - 1), mode="bilinear", align_corners=False)
    return torch.cat([image[0].flatten(1).T.to(table.dtype), table[-CLASS_OFFSETS:]])


def relative_position_index(grid: tuple[int, int], device: torch.device) -> Int64[Tensor, "n n"]:
    """Return which row of the table holds the bias from token i to token j."""
    h, w = grid
    rows = torch.arange(h, device=device).repeat_interleave(w)
    columns = torch.arange(w, device=device).repeat(h)
    down = rows[:, None] - rows + h - 1
    right = columns[:, None] - columns + w - 1
    offsets = down * (2 * w - 1) + right
    to_token = (2 * h - 1) * (2 * w - 1)
    offsets = F.pad(offsets, (1, 0), value=to_token + 1)
    offsets = F.pad(offsets, (0, 0, 1, 0), value=to_token)
    return offsets.index_put((torch.zeros(1, dtype=torch.long, device=device),) * 2, offsets.new_tensor(to_token + 2))
