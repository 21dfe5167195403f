"""Tensor names of DPT, MiDaS, ZoeDepth and Depth Anything: `pretrained` is the encoder, `scratch` DPT's decoder."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from densevit.preprocess_config import PreprocessConfig
from densevit.weights.key_mapping import KeyMapping, Rule

LEVELS = range(4)
# Classifiers, the final norm and a residual unit of the deepest level: stored and never used.
NEVER_RUN = (
    "pretrained.model.head.*",
    "pretrained.model.head_dist.*",
    "pretrained.model.fc_norm.*",
    "pretrained.model.norm.*",
    "pretrained.model.pre_logits.*",
    "scratch.refinenet4.resConfUnit1.*",
)

# Tensors from whose shapes the decoder's options are read.
WIDTHS = (*(f"scratch.layer{i + 1}_rn.weight" for i in LEVELS), "scratch.refinenet1.out_conv.weight")


def reassemble_rules(decoder: str) -> list[Rule]:
    """Return the rules for `act_postprocess`; `decoder` is the prefix of our DPT."""
    return [
        rule
        for i in LEVELS
        for rule in (
            (f"pretrained.act_postprocess{i + 1}.0.project.0.*", f"{decoder}.reassemble.{i}.readout.project.*"),
            (f"pretrained.act_postprocess{i + 1}.3.*", f"{decoder}.reassemble.{i}.project.*"),
            (f"pretrained.act_postprocess{i + 1}.4.*", f"{decoder}.reassemble.{i}.resize.*"),
        )
    ]


def fusion_rules(scratch: str = "scratch.", decoder: str = "decoder") -> list[Rule]:
    """Return the rules for the decoder's names below `scratch`; `decoder` is the prefix of our DPT."""
    return [
        rule
        for i in LEVELS
        for rule in (
            (f"{scratch}layer{i + 1}_rn.*", f"{decoder}.reassemble.{i}.conv.*"),
            (f"{scratch}refinenet{i + 1}.resConfUnit1.bn{{n}}.*", f"{decoder}.fusions.{i}.level.norm{{n}}.*"),
            (f"{scratch}refinenet{i + 1}.resConfUnit1.*", f"{decoder}.fusions.{i}.level.*"),
            (f"{scratch}refinenet{i + 1}.resConfUnit2.bn{{n}}.*", f"{decoder}.fusions.{i}.refine.norm{{n}}.*"),
            (f"{scratch}refinenet{i + 1}.resConfUnit2.*", f"{decoder}.fusions.{i}.refine.*"),
            (f"{scratch}refinenet{i + 1}.out_conv.*", f"{decoder}.fusions.{i}.out.*"),
        )
    ]


# Of a depth head, whose `output_conv` has its upsampling at index 1.
HEAD_RULES: tuple[Rule, ...] = (
    ("scratch.output_conv.0.*", "heads.depth.projection.before.*"),
    ("scratch.output_conv.2.*", "heads.depth.projection.after.0.*"),
    ("scratch.output_conv.4.*", "heads.depth.projection.after.2.*"),
)


def key_mapping(
    *encoder: Rule, head: Sequence[Rule], decoder: str = "decoder", unused: Sequence[str] = ()
) -> KeyMapping:
    rules = (*reassemble_rules(decoder), *fusion_rules(decoder=decoder), *head, *encoder)
    return KeyMapping(rules, (*NEVER_RUN, *unused))


def decoder_options(tensors: Mapping[str, Tensor], decoder: str = "decoder") -> dict[str, Any]:
    """Return the options of our DPT for tensors under its names, `WIDTHS` among them."""
    unit = f"{decoder}.fusions.0.refine"
    options = {
        "channels": tensors[f"{decoder}.fusions.0.out.weight"].shape[0],
        "hidden": [tensors[f"{decoder}.reassemble.{i}.conv.weight"].shape[1] for i in LEVELS],
        "readout": "project" if f"{decoder}.reassemble.3.readout.project.weight" in tensors else "ignore",
        "norm": "batch" if f"{unit}.norm1.weight" in tensors else "none",
    }
    # Depth Anything keeps the biases of convolutions before BatchNorm (`use_bn`), DPT does not.
    has_both = options["norm"] == "batch" and f"{unit}.conv1.bias" in tensors
    return {**options, "residual_bias": True} if has_both else options


def head_options(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the options of a depth head with DPT's convolutions for tensors under its names."""
    mid, channels = tensors["heads.depth.projection.before.weight"].shape[:2]
    hidden = tensors["heads.depth.projection.after.0.weight"].shape[0]
    widths = {"hidden": hidden} if mid == max(channels // 2, hidden) else {"hidden": hidden, "mid_channels": mid}
    return {**widths, "align_corners": True}


def minimal_resize(height: int, width: int) -> PreprocessConfig:
    """Return the preprocessing of DPT and MiDaS, to multiples of 32, and resizing of predictions."""
    return PreprocessConfig(
        mode="minimal", size=(height, width), interpolation="bicubic", output_interpolation="bicubic"
    )


MULTIPLE = 32
