"""Folders of transformers' DPT, on a ViT of its own or on DINOv2: depth, relative and in metres, and classes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Metres, RawCheckpoint
from densevit.weights.families.huggingface import config as configs
from densevit.weights.families.huggingface.depth_anything import HuggingFace
from densevit.weights.families.huggingface.keys import DPT_HEAD, NECK, dinov2_rules, unused_backbone_tensors, vit_rules
from densevit.weights.key_mapping import KeyMapping, Rule

PATCH = 16


class DPT(HuggingFace):
    """DPT on a ViT or on DINOv2."""

    mark: ClassVar[str] = "head.head.2.weight"  # a tensor that distinguishes depth from segmentation
    rules: ClassVar[tuple[Rule, ...]] = DPT_HEAD  # for the names of the head

    kind = "dpt"
    head_scale = 2  # for any patch size

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return super().recognises(raw) and cls.mark in raw.tensors

    def head(self) -> Mapping[str, Any]:
        return {"type": "disparity"}

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need("neck.convs.3.weight", "head.head.0.weight", "head.head.4.weight", self.mark)
        if raw.config.get("is_hybrid"):
            raise CheckpointError(f"{raw.path}: DPT-Hybrid in transformers' layout; load isl-org's own file instead.")
        if raw.config.get("backbone_config"):
            backbone, out_indices = configs.read_dinov2(raw)
            stem, rules = "backbone.", dinov2_rules("backbone.", backbone["mlp"] != "gelu")
        else:
            backbone, out_indices = configs.read_vit(raw)
            stem, rules = "dpt.", vit_rules("dpt.")
        raw.need(f"{stem}embeddings.position_embeddings")
        spare = (*unused_backbone_tensors(stem, backbone, out_indices), "auxiliary_head.*")
        return self.to_checkpoint(
            raw,
            KeyMapping((*rules, *NECK, *self.rules), spare),
            {**backbone, "out_indices": out_indices},
            configs.read_dpt_neck(raw),
            self.head(),
        )


@FAMILIES.register("huggingface-dpt")
class Relative(DPT):
    """As MiDaS: Intel/dpt-large."""

    description = (
        "a folder of transformers' DPTForDepthEstimation, relative: inverse depth without unit (Intel/dpt-large)"
    )
    licence = "Apache-2.0"


@FAMILIES.register("huggingface-dpt-metric")
class Metric(DPT):
    """Metres, which neither the config nor the file says: facebook/dpt-dinov2-*-{nyu,kitti}."""

    description = "a folder of transformers' DPTForDepthEstimation, metric: metres (facebook/dpt-dinov2-*-{nyu,kitti})"
    licence = "Apache-2.0"

    def __init__(self, *, max_depth: Metres | None = None) -> None:
        """
        Args:
            max_depth: clips predictions, which transformers does not do.
        """
        self.max_depth = max_depth

    def head(self) -> Mapping[str, Any]:
        return {"type": "metric", "max_depth": self.max_depth, "min_depth": 0.0, "activation": "relu"}


@FAMILIES.register("huggingface-dpt-segmentation")
class Segmentation(DPT):
    """Intel/dpt-large-ade; its config names the classes."""

    description = "a folder of transformers' DPTForSemanticSegmentation: classes of pixels"
    licence = "Apache-2.0"
    mark = "head.head.1.running_mean"
    rules = (
        ("head.head.0.*", "heads.labels.before.0.*"),
        ("head.head.1.*", "heads.labels.before.1.*"),
        ("head.head.4.*", "heads.labels.logits.*"),
    )

    def head(self) -> Mapping[str, Any]:
        return {"type": "segmentation"}

    def output_resize(self, rule: PreprocessConfig, patch_size: int) -> tuple[PreprocessConfig, dict[str, Any]]:
        sides = rule.size if rule.mode == "fixed" and rule.size else ()
        if patch_size != PATCH or not sides or any(side % (2 * PATCH) for side in sides):
            raise CheckpointError(
                f"a segmentation DPT is read with patches of {PATCH} and images stretched to multiples of "
                f"{2 * PATCH}; this one has patches of {patch_size}, and its processor size {rule.size} ({rule.mode})."
            )
        return replace(rule, output_interpolation="bilinear"), {}

    def heads(self, tensors: Mapping[str, Tensor], raw: RawCheckpoint, head: Mapping[str, Any]) -> dict[str, Any]:
        count, hidden = tensors["heads.labels.logits.weight"].shape[:2]
        classes = configs.class_names(raw, count)
        return {"labels": {"align_corners": True, "hidden": hidden, "classes": classes, **head}}
