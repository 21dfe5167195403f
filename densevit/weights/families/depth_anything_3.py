"""Depth Anything 3's monocular models (Lin et al. 2025): DINOv2's ViT-L under DPT, with depth and sky.

Metric and mono share names and shapes. https://github.com/ByteDance-Seed/Depth-Anything-3
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.families import depth_anything, dinov2_backbone
from densevit.weights.families.dpt_keys import decoder_options
from densevit.weights.key_mapping import KeyMapping, vit_options

# Bytes are resized twice, to the longer side and then to multiples of the patch.
RESIZE = PreprocessConfig(mode="longest", size=(504, 504), interpolation="adaptive", round_to_uint8=True)
MARKS = ("backbone.pretrained.blocks.0.norm1.weight", "head.scratch.sky_output_conv2.2.weight")
OTHERS = ("backbone.pretrained.camera_token", "head.scratch.output_conv1_aux.0.weight")  # of models for many views
FOCAL = 300.0  # pixels

# Its decoder has Depth Anything 2's names.
OLDER = KeyMapping((("backbone.pretrained.*", "pretrained.*"), ("head.*", "depth_head.*")))
RULES = (("depth_head.scratch.sky_output_conv2.*", "heads.depth.sky.*"), *depth_anything.RULES)


class DepthAnything3(Family):
    """Base class."""

    licence = "Apache-2.0"
    model_name: ClassVar[str]  # in the `config.json` of a folder
    head: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        names = unwrapped(raw.tensors)
        model_name = raw.config.get("model_name", cls.model_name)
        return all(mark in names for mark in MARKS) and model_name == cls.model_name

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        theirs = RawCheckpoint(raw.path, unwrapped(raw.tensors))
        if several := [name for name in OTHERS if name in theirs.tensors]:
            raise CheckpointError(
                f"{raw.path}: a Depth Anything 3 model for several views (it has {several[0]}); what is read here "
                "are the monocular ones, DA3METRIC-LARGE and DA3MONO-LARGE."
            )
        theirs.need(*MARKS, "head.scratch.output_conv2.2.weight")
        ours = KeyMapping(RULES, depth_anything.UNUSED).to_densevit(OLDER.to_densevit(theirs.tensors))
        encoder = vit_options(ours, raw.path)
        out_indices = dinov2_backbone.head_blocks(encoder["depth"])
        hidden = int(theirs.tensors["head.scratch.output_conv2.0.weight"].shape[0])
        return ConvertedCheckpoint(
            model={
                "encoder": {
                    **encoder,
                    "pos_embed_interpolation": "offset",
                    "out_indices": out_indices,
                    "norm": True,
                    "norm_eps": 1e-5,
                },
                "decoder": {"type": "dpt", **decoder_options(ours)},
                "heads": {"depth": {"type": "sky_depth", "hidden": hidden, "align_corners": True, **self.head}},
            },
            tensors=ours,
            resize=RESIZE,
            source=f"Depth Anything 3, {self.model_name}",
            licence=self.licence,
        )


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefix `model.` of the released files."""
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items()}


@FAMILIES.register("depth-anything-3-metric")
class Metric(DepthAnything3):
    description = "Depth Anything 3, DA3METRIC-LARGE: metres, given the camera's focal length"
    model_name = "da3metric-large"
    head: ClassVar[Mapping[str, Any]] = {"focal": FOCAL}


@FAMILIES.register("depth-anything-3-mono")
class Mono(DepthAnything3):
    description = "Depth Anything 3, DA3MONO-LARGE: depth without unit, up to scale and shift"
    model_name = "da3mono-large"
