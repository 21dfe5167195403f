"""`config.json` of transformers' Depth Anything and DPT, read into options of our components and written from a card.

Configs before version 5 leave out what equals their class's default, so those defaults are facts of the format.
"""

from collections.abc import Mapping
from typing import Any

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.ops.resize import network_size
from densevit.preprocess_config import PreprocessConfig
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
    """Return the config with its class's defaults. Raises CheckpointError if it has values without a counterpart
    here."""
    full = {**defaults, **config}
    check_fixed(raw, full, {key: FIXED[key] for key in FIXED.keys() & defaults.keys()})
    return full


def check_fixed(raw: RawCheckpoint, stated: Config, fixed: Config) -> None:
    """Raise CheckpointError: a stated value that is not the one that is read here."""
    for key in fixed.keys() & stated.keys():
        have = list(stated[key]) if isinstance(stated[key], tuple) else stated[key]
        if have not in (fixed[key], ALSO.get(key, fixed[key])):
            raise CheckpointError(f"{raw.path}: its config has {key} {have!r}; what is read here is {fixed[key]!r}.")


def read_dinov2(raw: RawCheckpoint) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the encoder options and out indices of a config with a DINOv2 backbone. Raises CheckpointError: another
    backbone, or none."""
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
    """Return the encoder options and out indices of DPT's own ViT."""
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
    """Raise CheckpointError if a kind of depth that transformers does not know either."""
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
    """Return the options of our DPT decoder that shapes do not tell."""
    config = filled(raw, raw.config, DPT)
    return {
        "readout": config["readout_type"],
        "residual_bias": config["use_bias_in_fusion_residual"],
        "mix": config["add_projection"],
        "fusion_size": "double",
    }


def class_names(raw: RawCheckpoint, count: int) -> tuple[str, ...] | int:
    """Return them as `id2label` has them, where it has one for each class; else their number."""
    named = raw.config.get("id2label") or {}
    names = tuple(str(named[key]) for key in map(str, range(count)) if key in named)
    return names if len(names) == len(set(names)) == count else count


def depth_anything(card: ModelCard) -> dict[str, Any]:
    """Return the config of a DepthAnythingForDepthEstimation for a card of ours."""
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
        "mlp_ratio": mlp_ratio(encoder),
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


def mlp_ratio(encoder: Config) -> int:
    """Return the whole number by which transformers makes these MLPs. Raises CheckpointError if there is none."""
    dim, hidden = encoder["dim"], int(encoder["dim"] * encoder["mlp_ratio"])
    for ratio in range(1, 17):
        packed = 2 * ((int(dim * ratio * 2 / 3) + 7) // 8 * 8)  # as its SwiGLU rounds
        if hidden == (dim * ratio if encoder["mlp"] == "gelu" else packed):
            return ratio
    raise CheckpointError(f"transformers makes no MLPs of {hidden} hidden channels for {dim} channels.")


def _whole(value: float) -> float | int:
    """Return an int where it is one, which is what transformers' check of types asks for."""
    return int(value) if value == int(value) else value


# The class's defaults, which a file may leave out. `resample` counts as PIL does.
DEFAULTS: Mapping[str, Any] = {
    "do_resize": True, "size": {"height": 384, "width": 384}, "resample": 3, "keep_aspect_ratio": False,
    "ensure_multiple_of": 1, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "do_pad": False, "size_divisor": None,
    "do_center_crop": None,
}  # fmt: skip
RESAMPLE: Mapping[int, Any] = {2: "bilinear", 3: "bicubic"}
KIND = "DPTImageProcessor"


def read_processor(raw: RawCheckpoint, patch_size: int) -> tuple[PreprocessConfig, int, dict[str, Any]]:
    """Return the preprocessing, the multiple of the network's input size, and `mean` and `std` for images in [0, 1].
    Raises CheckpointError: no such file, another processor, or sizes that are no multiples of the patch size."""
    if not raw.preprocessor:
        raise CheckpointError(
            f"{raw.path}: has no preprocessor_config.json, which has the preprocessing; save the image "
            "processor into the folder, too."
        )
    kind = str(raw.preprocessor.get("image_processor_type") or raw.preprocessor.get("feature_extractor_type") or KIND)
    # Names of one processor over the years: feature extractors, and fast and slow ones.
    if kind.removesuffix("Fast").removesuffix("Pil") not in (KIND, "DPTFeatureExtractor"):
        raise CheckpointError(f"{raw.path}: its images go through a {kind}; what is read here is a {KIND}.")
    config = {**DEFAULTS, **raw.preprocessor}
    if config["do_center_crop"]:
        raise CheckpointError(f"{raw.path}: its processor crops the centre, so that borders have no prediction.")
    divisor = config["size_divisor"] if config["do_pad"] and config["size_divisor"] else 1
    padding: dict[str, Any] = {"padding": "stretch", "single_resize": True} if divisor > 1 else {}
    multiple = config["ensure_multiple_of"] if config["do_resize"] else divisor
    rule = PreprocessConfig(output_interpolation="bicubic", **padding)
    if not all(isinstance(number, int) for number in (*size_of(config["size"]), multiple)):
        raise CheckpointError(
            f"{raw.path}: its processor's size {config['size']} or multiple {multiple} is no integer."
        )
    if config["do_resize"]:
        rule = PreprocessConfig(
            mode="minimal" if config["keep_aspect_ratio"] else "fixed",
            size=size_of(config["size"]),
            interpolation=interpolation_of(raw, config["resample"]),
            antialias=True,
            round_to_uint8=True,
            output_interpolation="bicubic",
            **padding,
        )
    if rule.size is None:
        sides: tuple[int, ...] = (1,)
    else:
        sides = network_size(rule.size, rule, multiple) if rule.mode == "fixed" else (multiple,)
    # Networks here pad to whole patches by themselves, and no further.
    pads = any(side % divisor for side in sides)
    if divisor != patch_size if pads else any(side % patch_size for side in sides):
        came = f"pads to multiples of {divisor}, not" if pads else "makes sizes that are no multiples of"
        raise CheckpointError(
            f"{raw.path}: its processor {came} the network's patch of {patch_size}; set ensure_multiple_of, or "
            f"do_pad with size_divisor, to {patch_size}."
        )
    return rule, multiple, normalisation(config)


def interpolation_of(raw: RawCheckpoint, number: Any) -> Any:
    if number not in RESAMPLE:
        raise CheckpointError(f"{raw.path}: its processor resamples by PIL's {number!r}; what is read here is 2 or 3.")
    return RESAMPLE[number]


def size_of(size: Any) -> tuple[Any, Any]:
    return (size["height"], size["width"]) if isinstance(size, Mapping) else (size, size)


def normalisation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the normalisation of images in [0, 1]; the processor's is for bytes times its factor."""
    ones = 255 * (config["rescale_factor"] if config["do_rescale"] else 1.0)
    mean, std = (config["image_mean"], config["image_std"]) if config["do_normalize"] else ([0.0] * 3, [1.0] * 3)
    return {"mean": tuple(value / ones for value in mean), "std": tuple(value / ones for value in std)}


def processor_of(card: ModelCard) -> dict[str, Any]:
    """Return the processor nearest to the card's preprocessing.

    Depth Anything's own rule (`lower_bound`) has no name there; published conversions keep the aspect and scale as
    little as possible, and so does this.
    """
    rule = card.resize
    native = rule.size is None
    return {
        **DEFAULTS,
        "image_processor_type": KIND,
        "do_resize": not native,
        **({} if native else {"size": dict(zip(("height", "width"), rule.size or (), strict=True))}),
        "resample": 2 if rule.interpolation == "bilinear" else 3,
        "keep_aspect_ratio": rule.mode != "fixed" and not native,
        "ensure_multiple_of": 1 if native else card.multiple,
        "image_mean": list(card.mean),
        "image_std": list(card.std),
        "do_pad": native,
        "size_divisor": card.multiple if native else None,
    }
