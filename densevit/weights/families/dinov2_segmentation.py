"""DINOv2's segmentation heads (Oquab et al. 2024): batch norm and a 1x1 on the last block, or on the last four.

The file holds the head alone, in mmsegmentation's names; its backbone is another file. ADE20K (150 classes) and PASCAL
VOC 2012 (21). https://github.com/facebookresearch/dinov2
"""

from pathlib import Path
from typing import Any, NamedTuple

from densevit.errors import CheckpointError
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.families import dinov2_backbone
from densevit.weights.key_mapping import KeyMapping
from densevit.weights.readers import read_backbone

HEAD = "decode_head."
MARKS = (HEAD + "bn.running_mean", HEAD + "conv_seg.weight")
NAMES = KeyMapping(((f"{HEAD}bn.*", "decoder.norm.*"), (f"{HEAD}conv_seg.*", "heads.labels.logits.*")))


class HeadKind(NamedTuple):
    name: str
    side: int  # of the image's shorter side and of the window that slides over it
    stride: int


KINDS = {1: HeadKind("linear", 512, 341), 4: HeadKind("multi-scale", 640, 320)}
"""By the number of blocks; sizes as in the configs beside the files."""
DATA = {150: ("ADE20K", "ade20k"), 21: ("PASCAL VOC 2012", "voc")}


def resize(kind: HeadKind) -> PreprocessConfig:
    """Resize bytes as mmsegmentation does; each window is padded, and its prediction resized to the unpadded window."""
    return PreprocessConfig(
        mode="lower_bound",
        size=(kind.side, kind.side),
        interpolation="bilinear",
        round_to_uint8=True,
        padding="stretch",
        window=(kind.side, kind.side),
        stride=(kind.stride, kind.stride),
    )


@FAMILIES.register("dinov2-segmentation")
class DinoV2Segmentation(Family):
    """The multi-scale heads are published with five scales and mirrors: scales=(1, 1.32, 1.73, 2.28, 3), flip=True."""

    description = "DINOv2 with a segmentation head (..._linear_head or ..._ms_head): classes of pixels"
    licence = "Apache-2.0"

    def __init__(self, *, backbone: Path | None = None) -> None:
        """
        Args:
            backbone: file of the Vision Transformer, unless it is beside the head under its published name.
        """
        self.backbone = backbone

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS) and raw.shape(MARKS[1])[2:] == (1, 1)

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*MARKS)
        tensors = read_backbone(raw, self.backbone, dinov2_backbone.file_name(raw), (HEAD,))
        classes, channels = raw.shape(MARKS[1])[:2]
        width = int(tensors["patch_embed.proj.weight"].shape[0])
        if channels not in (width, 4 * width):
            raise CheckpointError(
                f"{raw.path}: a head of {channels} channels does not fit a backbone of {width}; it would need "
                f"{width} (the last block) or {4 * width} (the last four)."
            )
        out_indices = channels // width
        encoder, vit = dinov2_backbone.encoder(raw, tensors, out_indices, norm=True)
        data, table = DATA.get(classes, ("", ""))
        head: dict[str, Any] = {"type": "segmentation", "classes": classes}
        head_tensors = {name: tensor for name, tensor in raw.tensors.items() if name.startswith(HEAD)}
        return ConvertedCheckpoint(
            model={"encoder": encoder, "decoder": {"type": "linear", "norm": "batch"}, "heads": {"labels": head}},
            tensors={**vit, **NAMES.to_densevit(head_tensors)},
            resize=resize(KINDS[out_indices]),
            multiple=1,
            source=f"DINOv2, {encoder['depth']} blocks of {width} channels, "
            f"{KINDS[out_indices].name} segmentation head",
            licence=self.licence,
            trained_on=data,
            classes=table,
        )
