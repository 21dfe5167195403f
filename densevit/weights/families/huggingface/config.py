"""`config.json` of transformers' Depth Anything and DPT, read into options of our components and written from a card.

Configs before version 5 leave out what equals their class's default, so those defaults are facts of the format.
"""

from collections.abc import Mapping
from typing import Any

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.weights.external import RawCheckpoint

Config = Mapping[str, Any]

DINOV2: Config = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "mlp_ratio": 4, "hidden_act": "gelu",
    "layer_norm_eps": 1e-6, "image_size": 224, "patch_size": 14, "qkv_bias": True, "use_swiglu_ffn": False,
    "apply_layernorm": True, "num_channels": 3,
}  # fmt: skip
DEPTH_ANYTHING: Config = {
    "reassemble_factors": [4, 2, 1, 0.5], "head_in_index": -1, "head_hidden_size": 32,
    "depth_estimation_type": "relative", "max_depth": 1,
}  # fmt: skip
DPT: Config = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "patch_size": 16, "qkv_bias": True, "backbone_out_indices": [2, 5, 8, 11],
    "readout_type": "project", "reassemble_factors": [4, 2, 1, 0.5], "head_in_index": -1, "add_projection": False,
    "use_batch_norm_in_fusion_residual": False, "use_bias_in_fusion_residual": None, "num_channels": 3,
}  # fmt: skip
# Values that our components have no option for.
FIXED: Config = {
    "hidden_act": "gelu", "num_channels": 3, "qkv_bias": True, "reassemble_factors": [4, 2, 1, 0.5],
    "head_in_index": -1,
}  # fmt: skip
ALSO: Config = {"head_in_index": 3}  # the last of four, counted from the front


def filled(raw: RawCheckpoint, config: Config, defaults: Config) -> dict[str, Any]:
    """The config with its class's defaults. Raises CheckpointError if it has values without a counterpart here."""
    full = {**defaults, **config}
    for key in FIXED.keys() & defaults.keys():
        have = list(full[key]) if isinstance(full[key], tuple) else full[key]
        if have not in (FIXED[key], ALSO.get(key, FIXED[key])):
            raise CheckpointError(f"{raw.path}: its config has {key} {have!r}; what is read here is {FIXED[key]!r}.")
    return full


def read_dinov2(raw: RawCheckpoint) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Encoder options and out indices of a config with a DINOv2 backbone. Raises CheckpointError: another backbone, or
    none."""
    backbone = raw.config.get("backbone_config") or {}
    if backbone.get("model_type") != "dinov2":
        raise CheckpointError(
            f"{raw.path}: its config has backbone {backbone.get('model_type') or raw.config.get('backbone')!r}; "
            "what is read here is 'dinov2'."
        )
    config = filled(raw, backbone, DINOV2)
    options = {
        "heads": config["num_attention_heads"],
        "mlp": "swiglu_packed" if config["use_swiglu_ffn"] else "gelu",
        "eps": config["layer_norm_eps"],
        "norm": config["apply_layernorm"],
        "pos_embed_interpolation": "bicubic",
        "depth": config["num_hidden_layers"],
    }
    indices = config.get("out_indices") or [
        int(str(name).removeprefix("stage")) for name in config.get("out_features") or ()
    ]
    depth = config["num_hidden_layers"]
    return options, check_blocks(raw, [index % (depth + 1) - 1 for index in indices], depth)  # theirs count the stem


def read_vit(raw: RawCheckpoint) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Encoder options and out indices of DPT's own ViT."""
    config = filled(raw, raw.config, DPT)
    options = {
        "heads": config["num_attention_heads"],
        "mlp": "gelu",
        "eps": config["layer_norm_eps"],
        "norm": False,
        "pos_embed_interpolation": "bilinear",
        "depth": config["num_hidden_layers"],
    }
    return options, check_blocks(raw, config["backbone_out_indices"], config["num_hidden_layers"])


def check_blocks(raw: RawCheckpoint, blocks: list[int], depth: int) -> tuple[int, ...]:
    if len(blocks) != 4 or sorted(set(blocks)) != list(blocks) or not 0 <= blocks[0] <= blocks[-1] < depth:
        raise CheckpointError(
            f"{raw.path}: its config reads blocks {blocks} of {depth}; four increasing ones would fit."
        )
    return tuple(blocks)


def read_depth_anything_head(raw: RawCheckpoint) -> dict[str, Any]:
    """Raises CheckpointError if a kind of depth that transformers does not know either."""
    config = filled(raw, raw.config, DEPTH_ANYTHING)
    kind, scale = config["depth_estimation_type"], config["max_depth"] or 1
    if kind == "metric":
        return {"type": "metric", "max_depth": float(scale), "min_depth": 0.0, "activation": "sigmoid"}
    if kind != "relative" or scale != 1:
        raise CheckpointError(
            f"{raw.path}: its config has depth_estimation_type {kind!r} and max_depth {scale!r}; what is read "
            "here is 'metric' with any, or 'relative' with 1."
        )
    return {"type": "disparity"}


def read_dpt_neck(raw: RawCheckpoint) -> dict[str, Any]:
    """Options of our DPT decoder that shapes do not tell."""
    config = filled(raw, raw.config, DPT)
    return {
        "readout": config["readout_type"],
        "residual_bias": config["use_bias_in_fusion_residual"],
        "mix": config["add_projection"],
        "fusion_size": "double",
    }


def class_names(raw: RawCheckpoint, count: int) -> tuple[str, ...] | int:
    """As `id2label` has them, where it has one for each of so many classes; else their number."""
    named = raw.config.get("id2label") or {}
    names = tuple(str(named[key]) for key in map(str, range(count)) if key in named)
    return names if len(names) == len(set(names)) == count else count


def depth_anything(card: ModelCard) -> dict[str, Any]:
    """The config of a DepthAnythingForDepthEstimation for a card of ours."""
    encoder, decoder = card.model["encoder"], card.model["decoder"]
    output = next(iter(card.outputs.values()))
    out_indices = [index + 1 for index in card.out_indices]
    metric = output.kind == "metric" and output.range is not None
    dinov2 = {
        **DINOV2,
        "model_type": "dinov2",
        "hidden_size": encoder["dim"],
        "num_hidden_layers": encoder["depth"],
        "num_attention_heads": encoder["heads"],
        "image_size": encoder["image_size"],
        "patch_size": encoder["patch_size"],
        "mlp_ratio": 4,
        "use_swiglu_ffn": encoder["mlp"] == "swiglu_packed",
        "layer_norm_eps": encoder["eps"],
        "apply_layernorm": encoder["norm"],
        "out_indices": out_indices,
        "out_features": [f"stage{index}" for index in out_indices],
        "reshape_hidden_states": False,
    }
    return {
        **DEPTH_ANYTHING,
        "architectures": ["DepthAnythingForDepthEstimation"],
        "model_type": "depth_anything",
        "backbone_config": dinov2,
        "patch_size": encoder["patch_size"],
        "reassemble_hidden_size": encoder["dim"],
        "neck_hidden_sizes": list(decoder["hidden"]),
        "fusion_hidden_size": decoder["channels"],
        "head_hidden_size": next(iter(card.model["heads"].values()))["hidden"],
        "depth_estimation_type": "metric" if metric else "relative",
        "max_depth": _whole(output.range[1]) if metric and output.range else 1,
        "torch_dtype": "float32",
    }


def _whole(value: float) -> float | int:
    """An int where it is one, which is what transformers' check of types asks for."""
    return int(value) if value == int(value) else value
