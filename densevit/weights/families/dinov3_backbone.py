"""DINOv3's Vision Transformers (Siméoni et al. 2025) as timm's, with the same rotary position embeddings.

https://github.com/facebookresearch/dinov3
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.weights.external import RawCheckpoint
from densevit.weights.infer_vit_config import num_blocks
from densevit.weights.key_mapping import KeyMapping, Rule

STEM = "encoder.vit."
RULES: tuple[Rule, ...] = (
    ("storage_tokens", f"{STEM}reg_token"),
    ("blocks.{i}.ls{n}.gamma", STEM + "blocks.{i}.gamma_{n}"),
    ("blocks.{i}.mlp.w1.*", STEM + "blocks.{i}.mlp.fc1_g.*"),
    ("blocks.{i}.mlp.w2.*", STEM + "blocks.{i}.mlp.fc1_x.*"),
    ("blocks.{i}.mlp.w3.*", STEM + "blocks.{i}.mlp.fc2.*"),
    ("*", f"{STEM}*"),
)
# Tensors of training, and those that are computed.
UNUSED = ("mask_token", "local_cls_norm.*", "rope_embed.*", "blocks.{i}.attn.qkv.bias_mask")
BASE = 100.0  # of the periods of the rotary position embeddings
NEEDED = ("storage_tokens", "blocks.0.attn.qkv.weight", "rope_embed.periods")


def encoder(
    found: RawCheckpoint, tensors: Mapping[str, Tensor], name: str, out_indices: tuple[int, ...] | int | None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The encoder's part of a config, and its tensors under our names. Raises CheckpointError if a tensor is missing,
    or positions of another kind than any released model has.

    Args:
        name: timm's, whose sizes give way to those of the tensors; its normalisation stays.
        out_indices: blocks, or the last so many; None takes four at even distances.
    """
    RawCheckpoint(found.path, tensors).need(*NEEDED)
    gated = "blocks.0.mlp.w1.weight" in tensors
    dim = tensors["blocks.0.attn.qkv.weight"].shape[1]
    hidden = len(tensors[f"blocks.0.mlp.{'w1' if gated else 'fc1'}.weight"])
    periods = tensors["rope_embed.periods"]
    check_periods(found, periods)
    arguments = {
        "embed_dim": dim,
        "depth": num_blocks(tensors, "blocks."),
        "num_heads": dim // (4 * len(periods)),
        "mlp_ratio": hidden / dim if hidden % dim == 0 else (hidden + 0.5) / dim,
        "swiglu_mlp": gated,
        "swiglu_align_to": 1,  # 0 packs gate and value into one matrix
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "num_reg_tokens": tensors["storage_tokens"].shape[1],
    }
    ours = KeyMapping(RULES, UNUSED).to_densevit(tensors)
    part = {"type": "timm", "name": name, "arguments": arguments, "out_indices": out_indices, "norm": True}
    return part, {key: t for old, tensor in ours.items() for key, t in split(found, tensors, old, tensor).items()}


def check_periods(found: RawCheckpoint, periods: Tensor) -> None:
    count = len(periods)
    usual = BASE ** (torch.arange(count) / count)
    if not torch.allclose(periods.float(), usual, rtol=0.01):  # bfloat16 has three digits
        raise CheckpointError(
            f"{found.path}: its positions turn with periods {periods[0]:g} to {periods[-1]:g}; released models have "
            f"1 to {usual[-1]:.4g}, and no others can be read."
        )


def split(found: RawCheckpoint, tensors: Mapping[str, Tensor], name: str, tensor: Tensor) -> dict[str, Tensor]:
    """timm's biases of queries and values; keys have none, their third is masked."""
    if not name.endswith(".attn.qkv.bias"):
        return {name: tensor}
    stem = name.removesuffix("qkv.bias")
    query, key, value = (tensor * tensors.get(f"{name.removeprefix(STEM)}_mask", 1)).chunk(3)
    if key.any():
        raise CheckpointError(f"{found.path}: {name.removeprefix(STEM)} moves keys, which no released model does.")
    return {f"{stem}q_bias": query, f"{stem}v_bias": value}
