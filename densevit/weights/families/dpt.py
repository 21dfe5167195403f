"""DPT (Ranftl et al. 2021): large and hybrid, for relative depth, metres of KITTI and NYU, and ADE20K's classes.

https://github.com/isl-org/DPT; MiDaS publishes the relative ones, too, as `dpt_large_384` and `dpt_hybrid_384`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, HALF, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.families.dpt_keys import (
    HEAD_RULES,
    MULTIPLE,
    WIDTHS,
    decoder_options,
    head_options,
    key_mapping,
    minimal_resize,
)
from densevit.weights.key_mapping import Rule, four_even_blocks, vit_options

HYBRID = "pretrained.model.patch_embed.backbone.stem.conv.weight"
MARKS = (
    "pretrained.model.pos_embed",
    "pretrained.model.blocks.0.attn.qkv.weight",
    "pretrained.act_postprocess4.4.weight",
    "scratch.refinenet4.out_conv.weight",
    "scratch.output_conv.4.weight",
)
ENCODER: tuple[Rule, ...] = (
    ("pretrained.model.patch_embed.backbone.*", "encoder.backbone.*"),
    ("pretrained.model.*", "encoder.vit.*"),
)


class DPT(Family):
    """Base class."""

    licence = "MIT"
    resize: ClassVar[PreprocessConfig]
    # for the names of the head; `widths`: tensors whose shapes say how wide it is
    rules: ClassVar[tuple[Rule, ...]] = HEAD_RULES
    widths: ClassVar[tuple[str, ...]] = ("scratch.output_conv.0.weight", "scratch.output_conv.2.weight")
    trained_on: ClassVar[str]
    classes: ClassVar[str] = ""

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*MARKS, *WIDTHS, *self.widths)
        names = key_mapping(*ENCODER, head=self.rules, unused=("auxlayer.*",))
        tensors = names.to_densevit(raw.tensors)
        hybrid = HYBRID in raw.tensors
        encoder = vit_options(tensors, raw.path)
        encoder["out_indices"] = four_even_blocks(encoder["depth"])
        if hybrid:
            encoder = hybrid_options(tensors, encoder)
        return ConvertedCheckpoint(
            model={
                "encoder": {**encoder, **HALF, "norm": False, "pos_embed_interpolation": "bilinear"},
                "decoder": {"type": "dpt", **decoder_options(tensors)},
                "heads": self.heads(tensors),
            },
            tensors=tensors,
            unused=names.unused_tensors(raw.tensors),
            resize=self.resize,
            multiple=MULTIPLE,
            source=f"DPT-{'Hybrid' if hybrid else 'Large' if encoder['depth'] == 24 else 'Base'} (isl-org/DPT)",
            licence=self.licence,
            trained_on=self.trained_on,
            classes=self.classes,
        )

    def heads(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the heads for tensors under our names."""
        return {"depth": {**self.head(), **head_options(tensors)}}

    def head(self) -> dict[str, Any]:
        return {"type": "disparity"}


@FAMILIES.register("dpt")
class Relative(DPT):
    """Large, hybrid, and base for those who train one."""

    description = "DPT, relative: inverse depth without unit"
    resize = minimal_resize(384, 384)
    trained_on = "MIX 6 (Ranftl et al. 2021)"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS) and raw.shape("scratch.output_conv.4.weight")[0] == 1


class Metric(DPT):
    """DPT-Hybrid, fine-tuned: metres by two constants that the file does not hold."""

    scale: ClassVar[float]
    shift: ClassVar[float]

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return Relative.recognises(raw) and HYBRID in raw.tensors

    def head(self) -> dict[str, Any]:
        return {"type": "inverse_depth", "scale": self.scale, "shift": self.shift}


@FAMILIES.register("dpt-kitti")
class Kitti(Metric):
    """Made for KITTI's window of 352 x 1216 pixels."""

    description = "DPT-Hybrid, fine-tuned on KITTI: metres"
    scale, shift = 0.00006016, 0.00579  # run_monodepth.py
    resize = minimal_resize(352, 1216)
    trained_on = "MIX 6, then KITTI"


@FAMILIES.register("dpt-nyu")
class Nyu(Metric):
    description = "DPT-Hybrid, fine-tuned on NYU: metres"
    scale, shift = 0.000305, 0.1378  # run_monodepth.py
    resize = minimal_resize(480, 640)
    trained_on = "MIX 6, then NYU"


@FAMILIES.register("dpt-ade20k")
class Ade20k(DPT):
    """150 classes, ids from 0; the original adds 1, since ADE20K's 0 is no class."""

    description = "DPT for semantic segmentation, with batch norm in the decoder"
    resize = minimal_resize(480, 480)
    trained_on = "ADE20K"
    classes = "ade20k"
    widths = ()
    rules = (
        ("scratch.output_conv.0.*", "heads.labels.before.0.*"),
        ("scratch.output_conv.1.*", "heads.labels.before.1.*"),
        ("scratch.output_conv.4.*", "heads.labels.logits.*"),
    )

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS) and raw.shape("scratch.output_conv.4.weight")[0] > 1

    def heads(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        classes, hidden = tensors["heads.labels.logits.weight"].shape[:2]
        return {"labels": {"type": "segmentation", "classes": classes, "hidden": hidden, "align_corners": True}}


def hybrid_options(tensors: Mapping[str, Tensor], vit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the encoder `hybrid`, from those of its ViT."""
    depths: list[int] = []
    widths: list[int] = []
    while (first := f"encoder.backbone.stages.{len(depths)}.blocks") + ".0.conv3.weight" in tensors:
        widths.append(tensors[f"{first}.0.conv3.weight"].shape[0])
        depths.append(sum(name.startswith(first) and name.endswith(".conv3.weight") for name in tensors))
    return {
        "type": "hybrid",
        **{name: vit[name] for name in ("dim", "depth", "heads")},
        "widths": widths,
        "depths": depths,
        "stem": tensors["encoder.backbone.stem.conv.weight"].shape[0],
        "out_indices": vit["out_indices"][2:],
        "image_size": vit["image_size"] * 4 * 2 ** (len(depths) - 1),  # its patches are cells of the last stage
    }
