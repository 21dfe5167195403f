"""`preprocessor_config.json` of transformers' DPTImageProcessor: preprocessing."""

from collections.abc import Mapping
from typing import Any

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.ops.resize import network_size
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import RawCheckpoint

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
    """Preprocessing, the multiple of the network's input size, and `mean` and `std` for images in [0, 1]. Raises
    CheckpointError: no such file, another processor, or sizes that are no multiples of the patch size."""
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


def size_of(size: Any) -> tuple[int, int]:
    return (size["height"], size["width"]) if isinstance(size, Mapping) else (size, size)


def normalisation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Normalisation of images in [0, 1]; the processor's is for bytes times its factor."""
    ones = 255 * (config["rescale_factor"] if config["do_rescale"] else 1.0)
    mean, std = (config["image_mean"], config["image_std"]) if config["do_normalize"] else ([0.0] * 3, [1.0] * 3)
    return {"mean": tuple(value / ones for value in mean), "std": tuple(value / ones for value in std)}


def processor_of(card: ModelCard) -> dict[str, Any]:
    """The processor nearest to the card's preprocessing.

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
