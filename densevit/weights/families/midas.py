"""MiDaS 3.1 (Birkl et al. 2023): BEiT, Swin and Swin V2 under DPT's decoder; relative depth.

https://github.com/isl-org/MiDaS; its `dpt_large_384` and `dpt_hybrid_384` are of the family `dpt`.
"""

from dataclasses import replace
from math import isqrt
from typing import Any

from densevit.errors import CheckpointError
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
from densevit.weights.key_mapping import Rule, four_even_blocks, num_blocks

BEIT = "pretrained.model.blocks.0.attn.relative_position_bias_table"
SWIN = "pretrained.model.layers.0.blocks.0.norm1.weight"
MARKS = ("scratch.refinenet4.out_conv.weight", "scratch.output_conv.2.weight", "scratch.output_conv.4.weight")
TABLE = "relative_position_bias_table"

BEIT_RULES: tuple[Rule, ...] = (
    (f"pretrained.model.blocks.{{i}}.attn.{TABLE}", f"encoder.vit.blocks.{{i}}.{TABLE}"),
    ("pretrained.model.*", "encoder.vit.*"),
)
# timm has moved patch merging from the end of a stage to the beginning of the next.
SWIN_RULES: tuple[Rule, ...] = (
    *((f"pretrained.model.layers.{i}.downsample.*", f"encoder.swin.layers.{i + 1}.downsample.*") for i in range(3)),
    ("pretrained.model.*", "encoder.swin.*"),
)
# Buffers in files of old timm versions.
BUFFERS = (
    "pretrained.model.blocks.{i}.attn.relative_position_index",
    "pretrained.model.blocks.{i}.attn.k_bias",
    *(
        f"pretrained.model.layers.{{s}}.blocks.{{i}}.{buffer}"
        for buffer in ("attn_mask", "attn.relative_position_index", "attn.relative_coords_table", "attn.k_bias")
    ),
)


# Channels of the first stage, blocks of the third, version -> timm's name, and the side of the square input, the only
# one it takes. Weights do not tell the window sizes.
SWINS = {
    (192, 18, 2): ("swinv2_large_window12to24_192to384", 384),
    (128, 18, 2): ("swinv2_base_window12to24_192to384", 384),
    (96, 6, 2): ("swinv2_tiny_window16_256", 256),
    (192, 18, 1): ("swin_large_patch4_window12_384", 384),
}


@FAMILIES.register("midas")
class Midas(Family):
    """BEiT-L and -B, Swin2-L, -B and -T, Swin-L."""

    description = "MiDaS 3.1 on BEiT or Swin: inverse depth without unit"
    licence = "MIT"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS) and (BEIT in raw.tensors or SWIN in raw.tensors)

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*MARKS, *WIDTHS, "scratch.output_conv.0.weight", SWIN if SWIN in raw.tensors else BEIT)
        beit = BEIT in raw.tensors
        names = key_mapping(*(BEIT_RULES if beit else SWIN_RULES), head=HEAD_RULES, unused=BUFFERS)
        tensors = names.to_densevit(raw.tensors)
        encoder = beit_options(raw) if beit else swin_options(raw)
        size = encoder["image_size"]
        return ConvertedCheckpoint(
            model={
                "encoder": encoder,
                "decoder": {"type": "dpt", **decoder_options(tensors)},
                "heads": {"depth": {"type": "disparity", **head_options(tensors)}},
            },
            tensors=tensors,
            unused=names.unused_tensors(raw.tensors),
            resize=replace(minimal_resize(size, size), mode="minimal" if beit else "fixed"),
            multiple=MULTIPLE,
            source=f"MiDaS 3.1, {encoder['name']} (isl-org/MiDaS)",
            licence=self.licence,
            trained_on="MIX 6 and six more data sets (Birkl et al. 2023)",
        )


def beit_options(raw: RawCheckpoint, prefix: str = "") -> dict[str, Any]:
    """Return the encoder `timm` for a BEiT of any size. `prefix`: in front of `pretrained`."""
    model = f"{prefix}pretrained.model."
    offsets, heads = raw.shape(f"{prefix}{BEIT}")
    side = (isqrt(offsets) + 1) // 2  # a window of n x n cells knows (2n - 1)^2 offsets, and 3 of the class token
    raw.need(f"{model}patch_embed.proj.weight")
    dim, _, patch, _ = raw.shape(f"{model}patch_embed.proj.weight")
    depth = num_blocks(raw.tensors, f"{model}blocks.")
    return {
        "type": "timm",
        "name": f"beit_{'base' if depth == 12 else 'large'}_patch16_384",
        "arguments": {"embed_dim": dim, "depth": depth, "num_heads": heads, "patch_size": patch},
        "image_size": side * patch,
        "out_indices": four_even_blocks(depth),
        "norm": False,
    }


def swin_options(raw: RawCheckpoint) -> dict[str, Any]:
    """Return the encoder `swin`. Raises CheckpointError if a Swin that MiDaS has not published; weights do not tell the
    window sizes."""
    layers = "pretrained.model.layers."
    raw.need(f"{layers}3.blocks.0.norm1.weight")
    channels = raw.shape(SWIN)[0]
    depth = num_blocks(raw.tensors, f"{layers}2.blocks.")
    version = 2 if f"{layers}0.blocks.0.attn.logit_scale" in raw.tensors else 1
    if (channels, depth, version) not in SWINS:
        published = ", ".join(name for name, _ in SWINS.values())
        raise CheckpointError(
            f"{raw.path}: a Swin V{version} of {channels} channels and {depth} blocks in its third stage; "
            f"known: {published}."
        )
    name, size = SWINS[channels, depth, version]
    return {"type": "swin", "name": name, "image_size": size, **HALF}
