"""Weights of published Vision Transformers under densevit's names: fused matrices, position embeddings on another grid.

timm, DINOv2, OpenAI CLIP, Hugging Face CLIP, ViT and DINOv2, as flat dicts of tensors. A layout is recognised by one
name that only it has. The prefix of that name is removed, and names without it (a text tower, say) are dropped. All
others go through the layout's rules, pairs of pattern and replacement; a name that no rule matches stays, for the
loader to report.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.models.vit import load_npz
from densevit.models.vit.embeddings import resample_pos_embed
from densevit.models.vit.vision_transformer import VisionTransformer
from densevit.ops.matrices import fuse_qkv, fuse_swiglu
from densevit.utils.json_files import read_object

Rules = tuple[tuple[str, str], ...]


class CheckpointLayout(NamedTuple):
    name: str
    marker: str  # the name by which it is recognised
    rules: Rules
    extra_rules: Rules = ()  # for needed names without the prefix

    def prefix(self, names: set[str]) -> str | None:
        """Return the prefix of this layout's names; None for another layout."""
        fits = (name.removesuffix(self.marker) for name in names if name.endswith(self.marker))
        return next((prefix for prefix in sorted(fits, key=len) if not prefix or prefix.endswith(".")), None)

    def rename(self, name: str, prefix: str) -> str | None:
        """Return our name; None for tensors that are not needed."""
        if not name.startswith(prefix) and not any(re.search(pattern, name) for pattern, _ in self.extra_rules):
            return None
        name = name.removeprefix(prefix)
        for pattern, ours in (*self.rules, *self.extra_rules):
            name = re.sub(pattern, ours, name)
        return None if name.startswith(UNWANTED) else name


# Position numbers, masks of pre-training, and the [CLS] layer of BERT that no task uses.
UNWANTED = ("embeddings.position_ids", "mask_token", "pooler.")

HUGGING_FACE_CLIP = CheckpointLayout(
    "Hugging Face CLIP",
    marker="embeddings.class_embedding",
    rules=(
        (r"^embeddings\.class_embedding$", "cls_token"),
        (r"^embeddings\.position_embedding\.weight$", "pos_embed"),
        (r"^embeddings\.patch_embedding\.", "patch_embed.proj."),
        (r"^pre_layrnorm\.", "norm_pre."),  # sic, in every file
        (r"^post_layernorm\.", "norm."),
        (r"^encoder\.layers\.", "blocks."),
        (r"\.layer_norm([12])\.", r".norm\1."),
        (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
        (r"\.self_attn\.out_proj\.", ".attn.proj."),
    ),
    extra_rules=((r"^visual_projection\.", "head."),),
)

# Files have the older names, with attention.attention and output.dense; models in memory the newer.
HUGGING_FACE = CheckpointLayout(
    "Hugging Face ViT or DINOv2",
    marker="embeddings.patch_embeddings.projection.weight",
    rules=(
        (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
        (r"^embeddings\.position_embeddings$", "pos_embed"),
        (r"^embeddings\.register_tokens$", "reg_token"),
        (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
        (r"^layernorm\.", "norm."),
        (r"^(encoder\.layer|layers)\.", "blocks."),
        (r"\.attention\.attention\.(q|k|v)(uery|ey|alue)\.", r".attn.\1."),
        (r"\.attention\.([qkv])_proj\.", r".attn.\1."),
        (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
        (r"\.layernorm_before\.", ".norm1."),
        (r"\.layernorm_after\.", ".norm2."),
        (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
        (r"\.(intermediate\.dense|mlp\.weights_in)\.", ".mlp.fc1."),
        (r"\.(output\.dense|mlp\.weights_out|mlp\.down_proj)\.", ".mlp.fc2."),
        (r"\.mlp\.gate_proj\.", ".mlp.fc1_g."),
        (r"\.mlp\.up_proj\.", ".mlp.fc1_x."),
    ),
    extra_rules=((r"^classifier\.", "head."),),
)

OPENAI_CLIP = CheckpointLayout(
    "OpenAI CLIP",
    marker="class_embedding",
    rules=(
        (r"^class_embedding$", "cls_token"),
        (r"^positional_embedding$", "pos_embed"),
        (r"^conv1\.", "patch_embed.proj."),
        (r"^ln_pre\.", "norm_pre."),
        (r"^ln_post\.", "norm."),
        (r"^proj$", "head.weight"),
        (r"^transformer\.resblocks\.", "blocks."),
        (r"\.ln_([12])\.", r".norm\1."),
        (r"\.attn\.in_proj_", ".attn.qkv."),
        (r"\.attn\.out_proj\.", ".attn.proj."),
        (r"\.mlp\.c_fc\.", ".mlp.fc1."),
        (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    ),
)

# timm's own names and a few of DINOv2. Its marker fits every plain ViT, so it comes last.
TIMM = CheckpointLayout(
    "timm or DINOv2",
    marker="patch_embed.proj.weight",
    rules=(
        (r"^register_tokens$", "reg_token"),
        (r"\.mlp\.w12\.", ".mlp.fc1."),
        (r"\.mlp\.w3\.", ".mlp.fc2."),
    ),
)

CLEARLY = 0.9  # of the differences between the rows of one grid, those of another

LAYOUTS = (HUGGING_FACE_CLIP, HUGGING_FACE, OPENAI_CLIP, TIMM)


State = dict[str, Tensor]

ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}  # transformers' names that are not ours


def check_config(vit: VisionTransformer, weights: Path) -> None:
    """Raise CheckpointError if the `config.json` of transformers beside the weights is of another ViT in what shapes
    do not tell."""
    beside = weights.with_name("config.json")
    config = read_object(beside) if beside.is_file() else {}
    within = (config.get(key) for key in ("vision_config", "backbone_config"))
    config = next((one for one in within if isinstance(one, dict)), config)
    block: Any = vit.blocks[0]
    own = {"num_attention_heads": ("heads", block.attn.heads), "layer_norm_eps": ("eps", block.norm1.eps)}
    if not vit.mlp.startswith("swiglu"):  # which has an activation of its own
        own["hidden_act"] = ("mlp", vit.mlp)
    for key, (option, value) in own.items():
        stated = config.get(key, value)
        if (wanted := ACTIVATIONS.get(str(stated), stated)) != value:
            raise CheckpointError(
                f"{beside}: its {key} is {stated!r}, where the encoder has {option} {value!r}; use {option}: {wanted}."
            )


def convert(state: Mapping[str, Tensor], vit: VisionTransformer) -> State:
    """Return `state` under our names and on the grid of `vit`; unknown names stay, for the loader to report."""
    converted = fuse_qkv(load_npz.rename(state) if load_npz.is_google_npz(state) else rename(dict(state)))
    if vit.mlp == "swiglu_packed":
        converted = fuse_swiglu(converted)
    if "cls_token" in converted:
        converted["cls_token"] = converted["cls_token"].reshape(1, 1, -1)
    return fit_pos_embed(converted, vit) if "pos_embed" in converted else converted


def rename(state: State) -> State:
    for layout in LAYOUTS:
        prefix = layout.prefix(set(state))
        if prefix is not None:
            renamed = {layout.rename(name, prefix): tensor for name, tensor in state.items()}
            return {name: tensor for name, tensor in renamed.items() if name is not None}
    return state


def fit_pos_embed(state: State, vit: VisionTransformer) -> State:
    """Return the position embeddings on our grid and for our prefix tokens.

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
    resampled = resample_pos_embed(cells, grid_of(cells, vit.grid), vit.grid, vit.pos_embed_interpolation)
    moved["pos_embed"] = torch.cat([before, resampled], dim=1)
    return moved


def grid_of(cells: Float[Tensor, "1 cells d"], own: tuple[int, int]) -> tuple[int, int]:
    """Return the grid of position embeddings: that of a square, as of published files, or our own. Where both have so
    many cells (24 x 24 and 18 x 32), it is a square only if its rows differ clearly less."""
    count, side = cells.shape[1], round(cells.shape[1] ** 0.5)
    if count != side**2 or count != own[0] * own[1]:
        return own if count == own[0] * own[1] else (side, side)
    as_own, as_square = (cells.float().reshape(*grid, -1).diff(dim=0).abs().mean() for grid in (own, (side, side)))
    return (side, side) if as_square < CLEARLY * as_own else own


def fits_grid(cells: int, own_cells: int) -> bool:
    return cells > 0 and (cells == own_cells or round(cells**0.5) ** 2 == cells)
