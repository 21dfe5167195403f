"""DINOv2's depth heads (Oquab et al. 2024): linear on one or four blocks, and DPT, on a frozen backbone.

The file holds the head alone; its backbone is another file. The range is in neither: heads for NYU reach to 10 m, for
KITTI to 80 m. (`dinov2/hub/depthers.py` always uses 80 m for linear heads, so depths for NYU are eight times too large;
with 10 m they score as published.) https://github.com/facebookresearch/dinov2
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, Metres, RawCheckpoint
from densevit.weights.families import dino_dpt_keys, dinov2_backbone
from densevit.weights.key_mapping import KeyMapping
from densevit.weights.readers import check_width, read_backbone

# Not resized; the normalised image is padded to whole patches, and the prediction resized to the unpadded image.
RESIZE = PreprocessConfig(mode="native", padding="stretch")
HEAD = "decode_head."
LINEAR = "conv_depth.weight"
NEAR = 1e-3  # metres


@FAMILIES.register("dinov2-depth")
class DinoV2Depth(Family):
    """A depth head of any range."""

    description = "DINOv2 with a depth head of your own: metres; give its max_depth (as max_depth=10)"
    trained_on: ClassVar[str] = ""

    def __init__(self, *, max_depth: Metres, backbone: Path | None = None) -> None:
        """
        Args:
            backbone: file of the Vision Transformer, unless it is beside the head under its published name.
        """
        self.max_depth, self.backbone = max_depth, backbone

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return any(HEAD + mark in raw.tensors for mark in (LINEAR, dino_dpt_keys.MARKS[-1]))

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        head = {name.removeprefix(HEAD): t for name, t in raw.tensors.items() if name.startswith(HEAD)}
        tensors = read_backbone(raw, self.backbone, dinov2_backbone.file_name(raw), (HEAD,))
        if LINEAR in head:
            out_indices, components, ours = self.linear(raw, head, int(tensors["patch_embed.proj.weight"].shape[0]))
        else:
            out_indices, components, ours = self.dpt(raw, head, tensors)
        encoder, vit = dinov2_backbone.encoder(raw, tensors, out_indices, norm=False)
        return ConvertedCheckpoint(
            model={"encoder": encoder, **components},
            tensors={**vit, **ours},
            resize=RESIZE,
            source=f"DINOv2, {encoder['depth']} blocks of {encoder['dim']} channels, "
            f"{'linear' if LINEAR in head else 'DPT'} depth head",
            licence=self.licence,
            trained_on=self.trained_on,
        )

    def linear(
        self, raw: RawCheckpoint, head: Mapping[str, Tensor], width: int
    ) -> tuple[int | None, dict[str, Any], dict[str, Tensor]]:
        """Return the linear head on one block or four, with class tokens."""
        bins, channels = head[LINEAR].shape[:2]
        if channels not in (2 * width, 8 * width):
            raise CheckpointError(
                f"{raw.path}: a linear head of {channels} channels does not fit a backbone of {width}; it would need "
                f"{2 * width} (the last block) or {8 * width} (four)."
            )
        range_ = {"min_depth": NEAR, "max_depth": self.max_depth}
        components = {
            "decoder": {"type": "linear", "class_token": True},
            "heads": {"depth": {"type": "bins", "bins": bins, "upsample": 4, **range_}},
        }
        names = KeyMapping((("conv_depth.*", "heads.depth.projection.0.*"),))
        return (1 if channels == 2 * width else None), components, names.to_densevit(head)

    def dpt(
        self, raw: RawCheckpoint, head: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> tuple[int | None, dict[str, Any], dict[str, Tensor]]:
        raw.need(*(HEAD + mark for mark in dino_dpt_keys.MARKS), f"{HEAD}conv_depth.head.0.weight")
        check_width(raw, int(head[dino_dpt_keys.MARKS[0]].shape[1]), tensors)
        depth = {
            "type": "metric",
            "activation": "relu",
            "min_depth": NEAR,
            "max_depth": self.max_depth,
            "hidden": dino_dpt_keys.hidden(head),
            "align_corners": True,
            "scale": 2,
        }
        components = {"decoder": dino_dpt_keys.decoder(head), "heads": {"depth": depth}}
        return None, components, KeyMapping(dino_dpt_keys.RULES).to_densevit(head)


class Released(DinoV2Depth):
    """One of the published heads."""

    licence = "Apache-2.0"
    reach: ClassVar[float]

    def __init__(self, *, backbone: Path | None = None) -> None:
        super().__init__(max_depth=self.reach, backbone=backbone)


@FAMILIES.register("dinov2-depth-nyu")
class Nyu(Released):
    description = "DINOv2 with a released depth head for NYU (..._nyu_..._head.pth): metres up to 10"
    reach = 10.0
    trained_on = "NYU Depth v2"


@FAMILIES.register("dinov2-depth-kitti")
class Kitti(Released):
    description = "DINOv2 with a released depth head for KITTI (..._kitti_..._head.pth): metres up to 80"
    reach = 80.0
    trained_on = "KITTI"
