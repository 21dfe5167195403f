"""DINOv3's depth heads (Siméoni et al. 2025): DPT with bins on ViT-7B and, for canopy heights, ViT-L; linear probes.

The file holds the head alone; its backbone is another file. https://github.com/facebookresearch/dinov3
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, Metres, RawCheckpoint
from densevit.weights.families import dino_dpt_keys
from densevit.weights.key_mapping import KeyMapping, Rule, four_even_blocks, num_blocks
from densevit.weights.readers import check_width, read_backbone

# Not resized; the normalised image is padded to whole patches, and the prediction resized to the unpadded image.
NATIVE = PreprocessConfig(mode="native", padding="stretch", single_resize=True)
HEAD = ("reassemble_blocks.", "convs.", "fusion_blocks.", "project.", "conv_depth.", "batchnorm_layer.")
BATCH_NORM = "reassemble_blocks.batchnorm_layers.0.weight"
READOUT = "reassemble_blocks.readout_projects.0.0.weight"
NEAR = 1e-3  # metres


class DinoV3Depth(Family):
    """Base class."""

    licence = "DINOv3 License"
    model: ClassVar[str]  # timm's name of the backbone
    out_indices: ClassVar[Mapping[int, tuple[int, ...]]] = {}  # by depth, where they are not at even distances
    files: ClassVar[str]  # the backbone's published name
    resize: ClassVar[PreprocessConfig] = NATIVE
    trained_on: ClassVar[str] = ""

    def __init__(self, *, backbone: Path | None = None) -> None:
        """
        Args:
            backbone: file of the Vision Transformer, unless it is beside the head under its published name.
        """
        self.backbone = backbone

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        head = {name: tensor for name, tensor in raw.tensors.items() if name.startswith(HEAD)}
        tensors = read_backbone(raw, self.backbone, self.files, HEAD)
        components, ours, out_indices = self.parts(raw, head, tensors)
        encoder, vit = dinov3_encoder(raw, tensors, self.model, out_indices)
        return ConvertedCheckpoint(
            model={"encoder": encoder, **components},
            tensors={**vit, **ours},
            resize=self.resize,
            source=f"DINOv3, {encoder['arguments']['depth']} blocks of {encoder['arguments']['embed_dim']} channels",
            licence=self.licence,
            trained_on=self.trained_on,
        )

    def parts(
        self, raw: RawCheckpoint, head: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Any], dict[str, Tensor], tuple[int, ...] | int | None]:
        """Return the options of decoder and head, their tensors, and the out indices."""
        raw.need(*dino_dpt_keys.MARKS, "conv_depth.head.0.weight")
        check_width(raw, int(head[dino_dpt_keys.MARKS[0]].shape[1]), tensors)
        bins = int(head[dino_dpt_keys.MARKS[-1]].shape[0])
        form = {"type": "bins", "form": "dpt", "bins": bins, "hidden": dino_dpt_keys.hidden(head), "upsample": 2}
        components = {"decoder": dino_dpt_keys.decoder(head), "heads": {"depth": {**form, **self.bins()}}}
        depth = num_blocks(tensors, "blocks.")
        blocks = self.out_indices.get(depth, four_even_blocks(depth))
        return components, KeyMapping(dino_dpt_keys.RULES).to_densevit(head), blocks

    def bins(self) -> dict[str, Any]:
        return {}


@FAMILIES.register("dinov3-depth-synthmix")
class Synthmix(DinoV3Depth):
    """Its numbers look like metres, but the published scores are after a fit of scale and shift to ground truth."""

    description = "DINOv3 ViT-7B with its depth head (..._synthmix_dpt_head): depth without unit, up to scale and shift"
    model = "vit_7b_patch16_dinov3.lvd1689m"
    files = "dinov3_vit7b16_pretrain_lvd1689m*.pth"
    # Of `config-nyu-synthmix-dpt-inference.yaml`.
    resize = PreprocessConfig(
        mode="shortest",
        size=(768, 768),
        interpolation="bilinear",
        antialias=True,
        padding="stretch",
        single_resize=True,
    )
    trained_on = "SYNTHMIX"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return dino_dpt_keys.MARKS[-1] in raw.tensors and BATCH_NORM in raw.tensors

    def bins(self) -> dict[str, Any]:
        return {"min_depth": NEAR, "max_depth": 100.0, "kind": "affine"}


@FAMILIES.register("dinov3-chmv2")
class Chmv2(DinoV3Depth):
    """Heights of the canopy in images from above."""

    description = "DINOv3 ViT-L with the canopy height head CHMv2: metres above ground, of images from above"
    model = "vit_large_patch16_dinov3.sat493m"
    files = "dinov3_vitl16_pretrain_sat493m*.pth"
    out_indices: ClassVar[Mapping[int, tuple[int, ...]]] = {24: (5, 11, 17, 23)}
    trained_on = "canopy heights (CHMv2)"
    # Of `chmv2_inference.ipynb`; the backbone's own red is 0.430.
    mean: ClassVar[tuple[float, ...]] = (0.420, 0.411, 0.296)
    std: ClassVar[tuple[float, ...]] = (0.213, 0.156, 0.143)

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return dino_dpt_keys.MARKS[-1] in raw.tensors and READOUT in raw.tensors and BATCH_NORM not in raw.tensors

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        published = super().read(raw)
        normalisation = {"encoder.mean": self.mean, "encoder.std": self.std}
        tensors = {name: torch.tensor(values).view(1, 3, 1, 1) for name, values in normalisation.items()}
        return replace(published, tensors={**published.tensors, **tensors})

    def bins(self) -> dict[str, Any]:
        # The original spreads its bins from 0.001 to 12 and multiplies by 8.
        return {"min_depth": 8e-3, "max_depth": 96.0, "spacing": "mixed", "floor": 1e-8}


@FAMILIES.register("dinov3-depth-linear")
class Linear(DinoV3Depth):
    """What `dinov3/eval/depth/train.py` saves: a linear probe on one block or four."""

    description = "DINOv3 with a linear depth probe of your own: metres; give its max_depth (10 for NYU)"
    licence = "unknown"
    model = "vit_small_patch16_dinov3.lvd1689m"
    files = "dinov3_vit*_pretrain_lvd1689m*.pth"

    def __init__(self, *, max_depth: Metres, backbone: Path | None = None) -> None:
        super().__init__(backbone=backbone)
        self.max_depth = max_depth

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return "conv_depth.weight" in raw.tensors

    def parts(
        self, raw: RawCheckpoint, head: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Any], dict[str, Tensor], tuple[int, ...] | int | None]:
        bins, channels = head["conv_depth.weight"].shape[:2]
        width = tensors["blocks.0.attn.qkv.weight"].shape[1]
        if channels not in (width, 2 * width, 4 * width, 8 * width):
            raise CheckpointError(f"{raw.path}: a probe of {channels} channels fits no backbone of {width}.")
        rules = (("batchnorm_layer.*", "decoder.norm.*"), ("conv_depth.*", "heads.depth.projection.0.*"))
        decoder = {
            "type": "linear",
            "class_token": channels in (2 * width, 8 * width),
            "norm": "batch" if "batchnorm_layer.weight" in head else "none",
        }
        range_ = {"min_depth": NEAR, "max_depth": self.max_depth}
        heads = {"depth": {"type": "bins", "bins": bins, "upsample": 1, **range_}}
        return (
            {"decoder": decoder, "heads": heads},
            KeyMapping(rules).to_densevit(head),
            1 if channels <= 2 * width else None,
        )


STEM = "encoder.vit."
RULES: tuple[Rule, ...] = (
    ("storage_tokens", f"{STEM}reg_token"),
    ("blocks.{i}.ls{n}.gamma", STEM + "blocks.{i}.gamma_{n}"),
    ("blocks.{i}.mlp.w1.*", STEM + "blocks.{i}.mlp.fc1_g.*"),
    ("blocks.{i}.mlp.w2.*", STEM + "blocks.{i}.mlp.fc1_x.*"),
    ("blocks.{i}.mlp.w3.*", STEM + "blocks.{i}.mlp.fc2.*"),
    ("*", f"{STEM}*"),
)
# Tensors of training, and those that are computed.
UNUSED = ("mask_token", "local_cls_norm.*", "rope_embed.*", "blocks.{i}.attn.qkv.bias_mask")
BASE = 100.0  # of the periods of the rotary position embeddings
NEEDED = ("storage_tokens", "blocks.0.attn.qkv.weight", "rope_embed.periods")


def dinov3_encoder(
    raw: RawCheckpoint, tensors: Mapping[str, Tensor], name: str, out_indices: tuple[int, ...] | int | None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the encoder's part of a config and its tensors: timm's ViT, with the same rotary position embeddings.

    Raises CheckpointError if a tensor is missing, or positions of another kind than any released model has.

    Args:
        name: timm's, whose sizes give way to those of the tensors; its normalisation stays.
        out_indices: blocks, or n for the last n; None takes four at even distances.
    """
    RawCheckpoint(raw.path, tensors).need(*NEEDED)
    gated = "blocks.0.mlp.w1.weight" in tensors
    dim = tensors["blocks.0.attn.qkv.weight"].shape[1]
    hidden = len(tensors[f"blocks.0.mlp.{'w1' if gated else 'fc1'}.weight"])
    periods = tensors["rope_embed.periods"]
    check_periods(raw, periods)
    arguments = {
        "embed_dim": dim,
        "depth": num_blocks(tensors, "blocks."),
        "num_heads": dim // (4 * len(periods)),
        "mlp_ratio": hidden / dim if hidden % dim == 0 else (hidden + 0.5) / dim,
        "swiglu_mlp": gated,
        "swiglu_align_to": 1,  # 0 packs gate and value into one matrix
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "num_reg_tokens": tensors["storage_tokens"].shape[1],
    }
    ours = KeyMapping(RULES, UNUSED).to_densevit(tensors)
    encoder = {"type": "timm", "name": name, "arguments": arguments, "out_indices": out_indices, "norm": True}
    return encoder, {key: t for old, tensor in ours.items() for key, t in split_bias(raw, tensors, old, tensor).items()}


def check_periods(raw: RawCheckpoint, periods: Tensor) -> None:
    count = len(periods)
    usual = BASE ** (torch.arange(count) / count)
    if not torch.allclose(periods.float(), usual, rtol=0.01):  # bfloat16 has three digits
        raise CheckpointError(
            f"{raw.path}: its positions turn with periods {periods[0]:g} to {periods[-1]:g}; released models have "
            f"1 to {usual[-1]:.4g}, and no others can be read."
        )


def split_bias(raw: RawCheckpoint, tensors: Mapping[str, Tensor], name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return timm's biases of queries and values; keys have none, their third is masked."""
    if not name.endswith(".attn.qkv.bias"):
        return {name: tensor}
    stem = name.removesuffix("qkv.bias")
    query, key, value = (tensor * tensors.get(f"{name.removeprefix(STEM)}_mask", 1)).chunk(3)
    if key.any():
        raise CheckpointError(f"{raw.path}: {name.removeprefix(STEM)} moves keys, which no released model does.")
    return {f"{stem}q_bias": query, f"{stem}v_bias": value}
