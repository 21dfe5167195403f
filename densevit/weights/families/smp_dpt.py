"""The DPT of segmentation-models-pytorch: any ViT of timm, batch norm in the decoder, logits of classes.

Its files hold only weights; folders of its `save_pretrained` have a config.
https://github.com/qubvel-org/segmentation_models.pytorch
"""

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Size
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.key_mapping import KeyMapping, Rule, num_blocks

MARKS = (
    "encoder.model.patch_embed.proj.weight",
    *(f"decoder.reassemble_blocks.{i}.project_to_out_channel.weight" for i in range(4)),
    "decoder.fusion_blocks.0.project.weight",
    "decoder.fusion_blocks.0.residual_conv_block1.conv_1.weight",
    "segmentation_head.head.4.weight",
    "segmentation_head.head.4.bias",
)
PATCH = 16  # with others its decoder has different levels, or fails (14)
TABLE = "relative_position_bias_table"
READOUTS = {"cat": "project", "add": "average", "ignore": "ignore"}
# Arguments of its DPT; all others in a folder's config are for timm.
ITS_OWN = frozenset([
    "_model_class", "activation", "aux_params", "classes", "decoder_fusion_channels", "decoder_intermediate_channels",
    "decoder_readout", "dynamic_img_size", "encoder_depth", "encoder_name", "encoder_output_indices",
    "encoder_weights", "img_size", "in_channels",
])  # fmt: skip

RULES: tuple[Rule, ...] = (
    (f"encoder.model.blocks.{{i}}.attn.{TABLE}", f"encoder.vit.blocks.{{i}}.{TABLE}"),
    ("encoder.model.*", "encoder.vit.*"),
    ("decoder.projection_blocks.{i}.project.0.*", "decoder.reassemble.{i}.readout.project.*"),
    ("decoder.reassemble_blocks.{i}.project_to_out_channel.*", "decoder.reassemble.{i}.project.*"),
    ("decoder.reassemble_blocks.{i}.upsample.*", "decoder.reassemble.{i}.resize.*"),
    ("decoder.reassemble_blocks.{i}.project_to_feature_dim.*", "decoder.reassemble.{i}.conv.*"),
    *(
        (f"decoder.fusion_blocks.{i}.{theirs}.*", f"decoder.fusions.{3 - i}.{ours}.*")
        for i in range(4)
        for theirs, ours in (
            ("project", "out"),
            ("residual_conv_block1.conv_{n}", "level.conv{n}"),
            ("residual_conv_block1.batch_norm_{n}", "level.norm{n}"),
            ("residual_conv_block2.conv_{n}", "refine.conv{n}"),
            ("residual_conv_block2.batch_norm_{n}", "refine.norm{n}"),
        )
    ),
    ("segmentation_head.head.0.*", "heads.labels.before.0.*"),
    ("segmentation_head.head.1.*", "heads.labels.before.1.*"),
    ("segmentation_head.head.4.*", "heads.labels.logits.*"),
)
UNUSED = (
    "classification_head.*",
    *(f"encoder.model.{part}.*" for part in ("head", "head_dist", "fc_norm", "norm", "attn_pool")),
)


@FAMILIES.register("smp-dpt")
class SmpDPT(Family):
    """Trained by anybody; a mask of one class becomes two, no and yes."""

    description = "DPT of segmentation-models-pytorch: classes of pixels"
    licence: ClassVar[str] = "unknown"

    def __init__(
        self,
        *,
        encoder: str | None = None,
        readout: Literal["cat", "add", "ignore"] | None = None,
        out_indices: tuple[int, ...] | None = None,
        size: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]] | None = None,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        """
        Args:
            encoder: its `encoder_name`, a name of timm; needed for files without a folder's `config.json`.
            readout: its `decoder_readout`; needed where neither config nor weights tell "add" from "ignore".
            out_indices: its `encoder_output_indices`; four evenly spaced by default.
            size: height and width that images were resized to; by default the encoder's own.
            classes: names in the order of the ids.
        """
        self.encoder, self.readout, self.out_indices = encoder, readout, out_indices
        self.size, self.classes = size, classes

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS)

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*MARKS)
        check_patch(raw)
        names = KeyMapping(RULES, UNUSED)
        blocks = num_blocks(raw.tensors, "encoder.model.blocks.")
        out_indices = resolve_out_indices(self.out_indices or raw.config.get("encoder_output_indices"), blocks)
        beyond = [f"encoder.model.blocks.{i}.*" for i in range(out_indices[-1] + 1, blocks)]
        tensors = two_logits(KeyMapping(RULES, (*UNUSED, *beyond)).to_densevit(raw.tensors))
        image_size = encoder_size(raw)
        size = self.size or image_size
        return ConvertedCheckpoint(
            model={
                "encoder": {
                    "type": "timm",
                    "name": self.name(raw),
                    "out_indices": out_indices,
                    "norm": False,
                    "image_size": image_size,
                    "arguments": {key: value for key, value in raw.config.items() if key not in ITS_OWN},
                },
                "decoder": {
                    "type": "dpt",
                    "channels": raw.shape("decoder.fusion_blocks.0.project.weight")[0],
                    "hidden": [
                        raw.shape(f"decoder.reassemble_blocks.{i}.project_to_out_channel.weight")[0] for i in range(4)
                    ],
                    "readout": READOUTS[self.read_out(raw)],
                    "norm": "batch",
                    "deepest_unit": True,
                },
                "heads": {"labels": self.head(tensors, raw)},
            },
            tensors=tensors,
            unused=names.unused_tensors(raw.tensors),
            resize=PreprocessConfig(mode="fixed", size=size, interpolation="bilinear") if size else PreprocessConfig(),
            source=f"segmentation-models-pytorch, DPT on {self.name(raw)}",
            licence=self.licence,
        )

    def name(self, raw: RawCheckpoint) -> str:
        """Return timm's name of the encoder."""
        name = self.encoder or raw.config.get("encoder_name")
        if not name:
            raise CheckpointError(f"{raw.path}: its weights do not name their encoder; say encoder=NAME, as in timm.")
        return str(name).removeprefix("tu-")

    def read_out(self, raw: RawCheckpoint) -> str:
        """Return how the class token is used."""
        project = "decoder.projection_blocks.0.project.0.weight"
        if project in raw.tensors:
            after, before = raw.shape(project)
            if before == after:
                raise CheckpointError(f"{raw.path}: reads a class token that its encoder does not have; not supported.")
            return "cat"
        readout = self.readout or raw.config.get("decoder_readout")
        if readout not in ("add", "ignore"):
            raise CheckpointError(
                f"{raw.path}: its weights do not tell whether the class token is added or ignored; say readout=add "
                f"or readout=ignore, its `decoder_readout`{f', not {readout}' if readout else ''}."
            )
        return str(readout)

    def head(self, tensors: Mapping[str, Tensor], raw: RawCheckpoint) -> dict[str, Any]:
        count, hidden = tensors["heads.labels.logits.weight"].shape[:2]
        if self.classes and len(self.classes) != count:
            raise CheckpointError(f"{raw.path}: has {count} classes, and {len(self.classes)} names were given.")
        return {"type": "segmentation", "classes": self.classes or count, "hidden": hidden, "align_corners": True}


def check_patch(raw: RawCheckpoint) -> None:
    """Raise CheckpointError: other patch sizes, or not four levels."""
    patch = raw.shape(MARKS[0])[-1]
    if patch != PATCH or "decoder.reassemble_blocks.4.upsample.weight" in raw.tensors:
        raise CheckpointError(
            f"{raw.path}: patches of {patch} pixels; only its DPT with four levels and patches of {PATCH} is read."
        )


def resolve_out_indices(indices: Sequence[int] | None, blocks: int) -> list[int]:
    """Return its out indices, negative ones counted from the end; by default the last blocks of four equal parts."""
    return [index % blocks for index in indices] if indices else [int(blocks / 4 * i) - 1 for i in range(1, 5)]


def encoder_size(raw: RawCheckpoint) -> Size | None:
    """Return the size of images of the grid of position embeddings, a square unless the config has another; None for
    encoders without."""
    positions = raw.tensors.get("encoder.model.pos_embed")
    table = raw.tensors.get(f"encoder.model.blocks.0.attn.{TABLE}")
    if positions is not None:
        cells = isqrt(positions.shape[1])  # a few of them belong to class and registers
    elif table is not None:
        cells = (isqrt(table.shape[0]) + 1) // 2
    else:
        return None
    sides = raw.config.get("img_size") or cells * PATCH
    h, w = (sides, sides) if isinstance(sides, int) else sides
    return h // PATCH * PATCH, w // PATCH * PATCH


def two_logits(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return one logit as two, the first of them 0: their softmax is its sigmoid."""
    if tensors["heads.labels.logits.weight"].shape[0] > 1:
        return tensors
    logits = {name: tensor for name, tensor in tensors.items() if name.startswith("heads.labels.logits.")}
    return tensors | {name: torch.cat([torch.zeros_like(tensor), tensor]) for name, tensor in logits.items()}
