"""Depth Anything V1 and V2 (Yang et al. 2024, both): DINOv2 under a DPT decoder, from 518 pixels on the shorter side.

V1 and V2, relative and metric, share names and shapes; only a name can tell them apart. V1 reads the last four blocks,
V2 four at even distances. https://github.com/LiheYoung/Depth-Anything, https://github.com/DepthAnything/Depth-Anything-V2
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Metres, RawCheckpoint, WritableFamily
from densevit.weights.families.dpt_keys import decoder_options, fusion_rules, head_options
from densevit.weights.key_mapping import KeyMapping, Rule, add_unused, num_blocks, vit_options

# Preprocessing of both repositories, and V2's resizing of predictions (V1: without align_corners).
RESIZE = PreprocessConfig(mode="lower_bound", size=(518, 518), interpolation="bicubic", output_align_corners=True)
REGISTERS = "pretrained.register_tokens"
MARKS = ("pretrained.blocks.0.norm1.weight", "depth_head.projects.0.weight", "depth_head.scratch.output_conv1.weight")
# DINOv2's mask token and the first residual unit of the deepest fusion are in every file and never used.
UNUSED = ("pretrained.mask_token", "depth_head.scratch.refinenet4.resConfUnit1.*")
SIZES = {384: "S", 768: "B", 1024: "L", 1536: "G"}
"""Channels -> size."""

GATES: tuple[Rule, ...] = (
    ("pretrained.blocks.{i}.mlp.w12.*", "encoder.vit.blocks.{i}.mlp.fc1.*"),
    ("pretrained.blocks.{i}.mlp.w3.*", "encoder.vit.blocks.{i}.mlp.fc2.*"),
)
RULES: tuple[Rule, ...] = (
    (REGISTERS, "encoder.vit.reg_token"),
    ("pretrained.*", "encoder.vit.*"),
    ("depth_head.readout_projects.{i}.0.*", "decoder.reassemble.{i}.readout.project.*"),
    ("depth_head.projects.{i}.*", "decoder.reassemble.{i}.project.*"),
    ("depth_head.resize_layers.{i}.*", "decoder.reassemble.{i}.resize.*"),
    *fusion_rules("depth_head.scratch."),
    ("depth_head.scratch.output_conv1.*", "heads.depth.projection.before.*"),
    ("depth_head.scratch.output_conv2.*", "heads.depth.projection.after.*"),
)


class DepthAnything(WritableFamily):
    """Base class of V1 and V2."""

    version: ClassVar[str]
    out_indices: ClassVar[Mapping[int, tuple[int, ...]]]  # by the number of blocks
    resize: ClassVar[PreprocessConfig] = RESIZE
    head: Mapping[str, Any] = {"type": "disparity"}
    trained_on: ClassVar[str] = ""

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS) and num_blocks(raw.tensors, "pretrained.blocks.") in cls.out_indices

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*MARKS, "depth_head.scratch.output_conv2.2.weight")
        gated = "pretrained.blocks.0.mlp.w12.weight" in raw.tensors
        names = key_mapping(gated)
        tensors = names.to_densevit(raw.tensors)
        encoder = vit_options(tensors, raw.path, gated=gated)
        if encoder["depth"] not in self.out_indices:
            published = f"Depth Anything {self.version} has {' or '.join(map(str, self.out_indices))}"
            raise CheckpointError(f"{raw.path}: {encoder['depth']} blocks; {published}.")
        size = SIZES.get(encoder["dim"], f"{encoder['dim']} channels")
        return ConvertedCheckpoint(
            model={
                "encoder": {
                    **encoder,
                    "pos_embed_interpolation": "offset",
                    "out_indices": self.out_indices[encoder["depth"]],
                    "norm": True,
                    "registers": raw.shape(REGISTERS)[1] if raw.has(REGISTERS) else 0,
                },
                "decoder": {"type": "dpt", **decoder_options(tensors)},
                "heads": {"depth": {**self.head, **head_options(tensors)}},
            },
            tensors=tensors,
            unused=names.unused_tensors(raw.tensors),
            resize=self.resize,
            source=f"Depth Anything {self.version}, ViT-{size}",
            licence=self.licence_of(size),
            trained_on=self.trained_on,
        )

    def licence_of(self, size: str) -> str:
        return self.licence

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        self.check_components(card, encoder="vit", decoder="dpt")
        return key_mapping(card.model["encoder"]["mlp"] == "swiglu_packed").to_original(add_unused(tensors))


def key_mapping(gated: bool) -> KeyMapping:
    return KeyMapping((*GATES, *RULES) if gated else RULES, UNUSED)


@FAMILIES.register("depth-anything-v1")
class DepthAnythingV1(DepthAnything):
    """S, B and L, relative."""

    description = "Depth Anything V1, relative: inverse depth without unit, from the last four blocks"
    licence = "Apache-2.0"
    version = "V1"
    out_indices: ClassVar = {12: (8, 9, 10, 11), 24: (20, 21, 22, 23)}
    resize = replace(RESIZE, output_align_corners=False)
    trained_on = "1.5 M labelled and 62 M unlabelled images"


class DepthAnythingV2(DepthAnything):
    """Base class of relative and metric models."""

    version = "V2"
    out_indices: ClassVar = {12: (2, 5, 8, 11), 24: (4, 11, 17, 23), 40: (9, 19, 29, 39)}

    def licence_of(self, size: str) -> str:
        return "Apache-2.0" if size == "S" else "CC-BY-NC-4.0"  # its README


@FAMILIES.register("depth-anything-v2")
class Relative(DepthAnythingV2):
    """S, B, L and the unreleased G, relative."""

    description = "Depth Anything V2, relative: inverse depth without unit, from four blocks at even distances"
    licence = "Apache-2.0 (S), CC-BY-NC-4.0 (B, L, G)"
    trained_on = "595 K synthetic images, and 62 M real ones labelled by a model trained on those"

    @classmethod
    def writer(cls, card: ModelCard) -> WritableFamily:
        output = next(iter(card.outputs.values()))
        return cls() if output.kind != "metric" or output.range is None else Metric.writer(card)


@FAMILIES.register("depth-anything-v2-metric")
class Metric(DepthAnythingV2):
    """A fine-tuned model: metres up to a maximum that the file does not hold."""

    description = "Depth Anything V2, metric, fine-tuned: metres; give its max_depth (as max_depth=10)"

    def __init__(self, *, max_depth: Metres) -> None:
        self.head = {"type": "metric", "max_depth": max_depth, "min_depth": 0.0, "activation": "sigmoid"}

    @classmethod
    def writer(cls, card: ModelCard) -> WritableFamily:
        if (limits := next(iter(card.outputs.values())).range) is None:
            raise CheckpointError("it holds metres up to a maximum, and this model has none.")
        return Metric(max_depth=limits[1])

    def licence_of(self, size: str) -> str:
        return "unknown"


class Released(Metric):
    """One of the published metric models."""

    licence = "Apache-2.0 (S), CC-BY-NC-4.0 (B, L)"
    licence_of = DepthAnythingV2.licence_of
    max_depth: ClassVar[float]

    def __init__(self) -> None:
        super().__init__(max_depth=self.max_depth)

    @classmethod
    def writer(cls, card: ModelCard) -> WritableFamily:
        return cls()  # of its own maximum


@FAMILIES.register("depth-anything-v2-hypersim")
class Hypersim(Released):
    description = "Depth Anything V2, metric, indoor: the released model for Hypersim; metres up to 20"
    max_depth = 20.0
    trained_on = "Hypersim"


@FAMILIES.register("depth-anything-v2-vkitti")
class VirtualKitti(Released):
    description = "Depth Anything V2, metric, outdoor: the released model for Virtual KITTI 2; metres up to 80"
    max_depth = 80.0
    trained_on = "Virtual KITTI 2"
