"""EoMT on DINOv2 (Kerssies et al. 2025): queries in the last blocks of the encoder.

https://github.com/tue-mps/eomt. Its panoptic and instance models have the same tensors and are used for semantic
segmentation here. Those on DINOv3 are published as differences to weights with another licence and are not read.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from densevit.model_card import PreprocessConfig
from densevit.weights.external import ConvertedCheckpoint, RawCheckpoint
from densevit.weights.families.base import FAMILIES, Family
from densevit.weights.infer_vit_config import STEM, vit_options
from densevit.weights.key_mapping import KeyMapping, Rule

TOWER = "network.encoder.backbone."
MARKS = ("network.q.weight", "network.class_head.weight", f"{TOWER}blocks.0.attn.qkv.weight", f"{TOWER}pos_embed")
RULES: tuple[Rule, ...] = ((f"{TOWER}*", f"{STEM}*"), ("network.*", "decoder.*"))
OWN = ("network.encoder.pixel_*", "network.attn_mask_probs", "criterion.*")


@FAMILIES.register("eomt")
class EoMT(Family):
    """Every size on DINOv2, with registers or without."""

    description = "EoMT on DINOv2: classes of pixels"
    licence = "MIT"

    def __init__(self, *, blocks: Annotated[int, Field(gt=0)] = 4) -> None:
        """
        Args:
            blocks: number of blocks with queries, if the file does not tell.
        """
        self.blocks = blocks

    @classmethod
    def recognises(cls, found: RawCheckpoint) -> bool:
        return found.has(*MARKS)

    def read(self, found: RawCheckpoint) -> ConvertedCheckpoint:
        found.need(*MARKS)
        names = KeyMapping(RULES, OWN)
        tensors = names.to_densevit(found.tensors)
        probabilities = found.tensors.get("network.attn_mask_probs")
        queries, classes = found.shape("network.q.weight")[0], found.shape("network.class_head.weight")[0] - 1
        blocks = self.blocks if probabilities is None else len(probabilities)
        encoder = encoder_options(tensors, found)
        side = (encoder["image_size"],) * 2
        return ConvertedCheckpoint(
            model={
                "encoder": encoder,
                "decoder": {"type": "eomt", "classes": classes, "queries": queries, "blocks": blocks},
                "heads": {"labels": {"type": "mask_logits", "classes": classes}},
            },
            tensors=tensors,
            resize=PreprocessConfig(mode="shortest", size=side, interpolation="bilinear", antialias=True, window=side),
            source=f"EoMT, {encoder['depth']} blocks of {encoder['dim']} channels (tue-mps/eomt)",
            licence=self.licence,
        )


def encoder_options(tensors: Mapping[str, Tensor], found: RawCheckpoint) -> dict[str, Any]:
    """The encoder `vit` for timm's DINOv2 under our names; beside registers, only patches have positions."""
    registers = tensors.get(f"{STEM}reg_token")
    positions = tensors[f"{STEM}pos_embed"]
    whole = positions if registers is None else positions[:, [0, *range(positions.shape[1])]]
    first, second = (found.shape(f"{TOWER}blocks.0.mlp.fc{i}.weight") for i in (1, 2))
    options = vit_options({**tensors, f"{STEM}pos_embed": whole}, found.path, gated=first[0] == 2 * second[1])
    options |= {"out_indices": (options["depth"] - 1,), "norm": True, "pos_embed_interpolation": "antialias"}
    return options | ({} if registers is None else {"registers": registers.shape[1], "no_embed_class": True})
