"""DINOv2's Vision Transformers (Oquab et al. 2024) as the encoder `vit`, with and without registers.

https://github.com/facebookresearch/dinov2
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from densevit.weights.external import RawCheckpoint
from densevit.weights.infer_vit_config import vit_options
from densevit.weights.key_mapping import KeyMapping, Rule

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RULES: tuple[Rule, ...] = (
    ("register_tokens", "encoder.vit.reg_token"),
    ("blocks.{i}.mlp.w12.*", "encoder.vit.blocks.{i}.mlp.fc1.*"),
    ("blocks.{i}.mlp.w3.*", "encoder.vit.blocks.{i}.mlp.fc2.*"),
    ("*", "encoder.vit.*"),
)


def file_name(found: RawCheckpoint) -> str:
    """What the backbone of a head is published as; a glob where the head's own name does not say whose it is."""
    model, size, *_ = [*found.path.name.split("_"), ""]
    return f"dinov2_{size}_pretrain.pth" if model == "dinov2" else "dinov2_*_pretrain.pth"


def even(depth: int) -> tuple[int, ...]:
    """Four blocks at even distances, as its heads have been trained with; of 24 the first is the fifth."""
    return (4, 11, 17, 23) if depth == 24 else tuple(depth * i // 4 - 1 for i in range(1, 5))


def encoder(
    found: RawCheckpoint, tensors: Mapping[str, Tensor], out_indices: int | None, norm: bool
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The encoder's part of a config, and its tensors under our names.

    Args:
        out_indices: the last so many blocks; None takes four at even distances.
        norm: whether taps pass the final LayerNorm; without, it is left out.

    Raises:
        CheckpointError: a tensor is missing, or shapes that no ViT has.
    """
    spare = ("mask_token",) if norm else ("mask_token", "norm.*")
    ours = KeyMapping(RULES, spare).to_densevit(tensors)
    options = vit_options(ours, found.path, gated="blocks.0.mlp.w12.weight" in tensors)
    depth = options["depth"]
    chosen = even(depth) if out_indices is None else tuple(range(depth - out_indices, depth))
    options |= {"out_indices": chosen, "norm": norm, "mean": MEAN, "std": STD}
    if "register_tokens" not in tensors:
        return {**options, "pos_embed_interpolation": "offset"}, ours
    # Registers stand between the class token and the patches, and have no positions: the class token takes its own in.
    positions = ours["encoder.vit.pos_embed"]
    ours["encoder.vit.cls_token"] = ours["encoder.vit.cls_token"] + positions[:, :1]
    ours["encoder.vit.pos_embed"] = positions[:, 1:]
    registers = {"registers": tensors["register_tokens"].shape[1], "no_embed_class": True}
    return {**options, **registers, "pos_embed_interpolation": "antialias"}, ours
