"""DINOv2's Vision Transformers (Oquab et al. 2024) as the encoder `vit`, with and without registers.

https://github.com/facebookresearch/dinov2
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from densevit.weights.external import IMAGENET, RawCheckpoint
from densevit.weights.key_mapping import KeyMapping, Rule, four_even_blocks, vit_options

RULES: tuple[Rule, ...] = (
    ("register_tokens", "encoder.vit.reg_token"),
    ("blocks.{i}.mlp.w12.*", "encoder.vit.blocks.{i}.mlp.fc1.*"),
    ("blocks.{i}.mlp.w3.*", "encoder.vit.blocks.{i}.mlp.fc2.*"),
    ("*", "encoder.vit.*"),
)


def file_name(raw: RawCheckpoint) -> str:
    """Return the published name of the backbone of a head; a glob if the head's name does not tell the size."""
    model, size, *_ = [*raw.path.name.split("_"), ""]
    return f"dinov2_{size}_pretrain.pth" if model == "dinov2" else "dinov2_*_pretrain.pth"


def head_blocks(depth: int) -> tuple[int, ...]:
    """Return the four evenly spaced blocks that DINOv2's heads use; with 24 blocks the first is 4, not 5."""
    return (4, 11, 17, 23) if depth == 24 else four_even_blocks(depth)


def encoder(
    raw: RawCheckpoint, tensors: Mapping[str, Tensor], out_indices: int | None, norm: bool
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the options of the encoder, and its tensors under our names. Raises CheckpointError if a tensor is
    missing, or shapes that no ViT has. `out_indices`: the last n blocks; None for four evenly spaced; `norm`:
    apply the final LayerNorm; otherwise it is dropped."""
    spare = ("mask_token",) if norm else ("mask_token", "norm.*")
    ours = KeyMapping(RULES, spare).to_densevit(tensors)
    options = vit_options(ours, raw.path, gated="blocks.0.mlp.w12.weight" in tensors)
    depth = options["depth"]
    blocks = head_blocks(depth) if out_indices is None else tuple(range(depth - out_indices, depth))
    options |= {"out_indices": blocks, "norm": norm, **IMAGENET}
    if "register_tokens" not in tensors:
        return {**options, "pos_embed_interpolation": "offset"}, ours
    # Register tokens have no position embeddings: the class token's is added to the token.
    positions = ours["encoder.vit.pos_embed"]
    ours["encoder.vit.cls_token"] = ours["encoder.vit.cls_token"] + positions[:, :1]
    ours["encoder.vit.pos_embed"] = positions[:, 1:]
    registers = {"registers": tensors["register_tokens"].shape[1], "no_embed_class": True}
    return {**options, **registers, "pos_embed_interpolation": "antialias"}, ours
