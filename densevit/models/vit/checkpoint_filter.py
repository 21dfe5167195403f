"""Converts weights of published Vision Transformers to densevit's: names, fused matrices, position embeddings.

timm, DINOv2, OpenAI CLIP, Hugging Face CLIP, ViT and DINOv2, and Google's .npz, as flat dicts of tensors.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from densevit.models.vit import load_npz
from densevit.models.vit.checkpoint_keys import LAYOUTS
from densevit.models.vit.pos_embed import resample_pos_embed
from densevit.models.vit.vision_transformer import VisionTransformer
from densevit.ops.qkv import fuse_qkv, fuse_swiglu

State = dict[str, Tensor]


def convert(state: Mapping[str, Tensor], vit: VisionTransformer) -> State:
    """`state` under our names and on the grid of `vit`; unknown names stay, for the loader to report."""
    own = fuse_qkv(load_npz.rename(state) if load_npz.is_google_npz(state) else rename(dict(state)))
    if vit.mlp == "swiglu_packed":
        own = fuse_swiglu(own)
    if "cls_token" in own:
        own["cls_token"] = own["cls_token"].reshape(1, 1, -1)
    return fit_pos_embed(own, vit) if "pos_embed" in own else own


def rename(state: State) -> State:
    for layout in LAYOUTS:
        prefix = layout.prefix(set(state))
        if prefix is not None:
            renamed = {layout.rename(name, prefix): tensor for name, tensor in state.items()}
            return {name: tensor for name, tensor in renamed.items() if name is not None}
    return state


def fit_pos_embed(state: State, vit: VisionTransformer) -> State:
    """Position embeddings on our grid and for our prefix tokens.

    A position of the class token that we do not have is added to the token, which gives the same sum. Register tokens
    of files never have positions.
    """
    positions = state["pos_embed"].reshape(1, -1, state["pos_embed"].shape[-1])
    placed, has_class = vit.num_prefix_positions, "cls_token" in state
    own_cells = vit.grid[0] * vit.grid[1]
    prefix = next((p for p in (placed, int(has_class), 0) if fits_grid(positions.shape[1] - p, own_cells)), None)
    if prefix is None:
        return state  # the loader reports the shapes
    before, cells = positions[:, :prefix], positions[:, prefix:]
    moved = dict(state)
    if prefix == 1 and placed != 1:
        if placed:
            before = torch.cat([before, before.new_zeros(1, placed - 1, before.shape[-1])], dim=1)
        else:
            moved["cls_token"], before = state["cls_token"] + before, before[:, :0]
    if cells.shape[1] != own_cells:
        side = round(cells.shape[1] ** 0.5)
        cells = resample_pos_embed(cells, (side, side), vit.grid, vit.pos_embed_interpolation)
    moved["pos_embed"] = torch.cat([before, cells], dim=1)
    return moved


def fits_grid(cells: int, own_cells: int) -> bool:
    return cells > 0 and (cells == own_cells or round(cells**0.5) ** 2 == cells)
