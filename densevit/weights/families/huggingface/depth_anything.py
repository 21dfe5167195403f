"""Folders as `transformers` writes them, with `config.json` and `preprocessor_config.json`: Depth Anything.

A config leaves out defaults of its class, which are in `config.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.ops.matrices import fuse_qkv, split_qkv
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, RawCheckpoint, WritableFamily
from densevit.weights.families.dpt_keys import decoder_options, head_options
from densevit.weights.families.huggingface import config as configs
from densevit.weights.families.huggingface.config import processor_of, read_processor
from densevit.weights.families.huggingface.keys import DEPTH_ANYTHING_HEAD, NECK, dinov2_rules, unused_backbone_tensors
from densevit.weights.key_mapping import KeyMapping, add_unused, vit_options

FUSED = 8
"""Pixels of the last fusion's map for a patch."""


class HuggingFace(Family):
    """Base class."""

    kind: ClassVar[str]  # `model_type` of the config
    # upsampling factor of the head; None for upsampling to the network's input size
    head_scale: ClassVar[int | None] = None
    licence = "see the folder's README"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.config.get("model_type") == cls.kind

    def to_checkpoint(
        self,
        raw: RawCheckpoint,
        names: KeyMapping,
        encoder: Mapping[str, Any],
        decoder: Mapping[str, Any],
        head: Mapping[str, Any],
    ) -> ConvertedCheckpoint:
        """Return a model with these options and those from the shapes of the tensors."""
        tensors = fuse_qkv(names.to_densevit(raw.tensors))
        options = {
            **vit_options(tensors, raw.path, gated=encoder["mlp"] != "gelu", heads=encoder["heads"]),
            **encoder,
        }
        rule, multiple, values = read_processor(raw, options["patch_size"])
        resize, grown = self.output_resize(rule, options["patch_size"])
        return ConvertedCheckpoint(
            model={
                "encoder": {**options, **values},
                "decoder": {"type": "dpt", **decoder_options(tensors), **decoder},
                "heads": self.heads(tensors, raw, {**head, **grown}),
            },
            tensors=tensors,
            unused=names.unused_tensors(raw.tensors),
            resize=resize,
            multiple=multiple,
            source=str(raw.config.get("_name_or_path") or f"transformers, {self.kind}"),
            licence=self.licence,
        )

    def output_resize(self, rule: PreprocessConfig, patch_size: int) -> tuple[PreprocessConfig, dict[str, Any]]:
        """Return the preprocessing and head options, where the head does not upsample to the network's input size.

        Such a map is resized directly to the image's own size.
        """
        if rule.padding == "crop" and self.head_scale is None:
            return rule, {}
        head_scale = self.head_scale or patch_size / FUSED
        return replace(rule, padding="stretch", single_resize=True), {
            "scale": head_scale,
            "interpolation": rule.output_interpolation,
        }

    def heads(self, tensors: Mapping[str, Tensor], raw: RawCheckpoint, head: Mapping[str, Any]) -> dict[str, Any]:
        """Return the heads for tensors under our names; `head` is what those do not say."""
        return {"depth": {**head_options(tensors), **head}}


@FAMILIES.register("huggingface")
class DepthAnything(HuggingFace, WritableFamily):
    """Depth Anything V1 and V2; the config has the out indices, and whether it predicts metres or inverse depth."""

    description = "a folder of transformers' DepthAnythingForDepthEstimation; its config says what it predicts"
    kind = "depth_anything"

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        backbone, out_indices = configs.read_dinov2(raw)
        raw.need(
            "backbone.embeddings.position_embeddings", "neck.convs.3.weight", "head.conv1.weight", "head.conv2.weight"
        )
        rules = key_mapping(backbone["mlp"] != "gelu").rules
        return self.to_checkpoint(
            raw,
            KeyMapping(rules, unused_backbone_tensors("backbone.", backbone, out_indices)),
            {**backbone, "out_indices": out_indices},
            {},
            configs.read_depth_anything_head(raw),
        )

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        self.check_components(card, encoder="vit", decoder="dpt")
        if card.model["decoder"].get("norm", "none") != "none":
            raise CheckpointError("transformers' Depth Anything has no BatchNorm in its fusions (`use_bn`).")
        gated = card.model["encoder"]["mlp"] == "swiglu_packed"
        return key_mapping(gated).to_original(split_qkv(add_unused(tensors)))

    def describe(self, card: ModelCard) -> dict[str, Mapping[str, Any]]:
        return {"config.json": configs.depth_anything(card), "preprocessor_config.json": processor_of(card)}


def key_mapping(gated: bool) -> KeyMapping:
    rules = (*dinov2_rules("backbone.", gated), *NECK, *DEPTH_ANYTHING_HEAD)
    return KeyMapping(rules)
