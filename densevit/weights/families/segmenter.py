"""Segmenter (Strudel et al. 2021): a ViT of ImageNet, fine-tuned, and a mask transformer; for semantic segmentation.

https://github.com/rstrudel/segmenter, whose `checkpoint.pth` is beside `variant.yml`. Its content follows from the
tensors, except for the size of test images.
"""

from typing import Annotated, Any

from pydantic import Field

from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, HALF, IMAGENET, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.key_mapping import STEM, KeyMapping, Rule, vit_options

Pixels = Annotated[int, Field(gt=0)]
MARKS = ("decoder.cls_emb", "decoder.proj_patch", "decoder.mask_norm.weight", "encoder.pos_embed")
RULES: tuple[Rule, ...] = (("encoder.dist_token", "encoder.vit.reg_token"), ("encoder.*", "encoder.vit.*"))
NEVER_RUN = ("encoder.head.*", "encoder.head_dist.*", "encoder.pre_logits.*")
# Classes -> the shorter side of images and the stride of the window, segm/config.yml; ADE20K has both from the window.
TEST_SIZES = {19: (1024, 512), 60: (520, 320)}
DATA = {19: "cityscapes", 60: "pascal_context", 150: "ade20k"}  # published models, by their number of classes


@FAMILIES.register("segmenter")
class Segmenter(Family):
    """Every size with a mask decoder; DeiT's distillation token is a register token here."""

    description = "Segmenter with a mask transformer: classes of pixels"
    licence = "MIT"

    def __init__(self, *, short_side: Pixels | None = None, stride: Pixels | None = None) -> None:
        """
        Args:
            short_side: of the resized images; by default as published for the number of classes.
            stride: of the sliding window, which has the training size; likewise.
        """
        self.short_side, self.stride = short_side, stride

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*MARKS)

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*MARKS)
        names = KeyMapping(RULES, NEVER_RUN)
        tensors = names.to_densevit(raw.tensors)
        distilled = "encoder.dist_token" in raw.tensors
        # `vit_options` expects the position embedding of only one prefix token.
        plain = {**tensors, f"{STEM}pos_embed": tensors[f"{STEM}pos_embed"][:, distilled:]}
        encoder = vit_options(plain, raw.path)
        side, depth, classes = encoder["image_size"], encoder["depth"], raw.shape("decoder.cls_emb")[1]
        encoder |= {"registers": int(distilled), "out_indices": (depth - 1,), "norm": True, "eps": 1e-5}
        encoder |= {"pos_embed_interpolation": "bilinear", **(IMAGENET if distilled else HALF)}
        return ConvertedCheckpoint(
            model={
                "encoder": encoder,
                "decoder": self.decoder(raw, classes),
                "heads": {"labels": {"type": "mask_logits", "classes": classes}},
            },
            tensors=tensors,
            unused=names.unused_tensors(raw.tensors),
            resize=self.resize(side, classes),
            source=f"Segmenter, {depth} blocks of {encoder['dim']} channels (rstrudel/segmenter)",
            licence=self.licence,
            classes=DATA.get(classes, ""),
        )

    def decoder(self, raw: RawCheckpoint, classes: int) -> dict[str, Any]:
        layers = sum(name.endswith("attn.qkv.weight") and name.startswith("decoder.blocks.") for name in raw.tensors)
        channels = raw.shape("decoder.proj_dec.weight")[0]
        return {"type": "mask_transformer", "classes": classes, "channels": channels, "layers": layers}

    def resize(self, side: int, classes: int) -> PreprocessConfig:
        short, stride = TEST_SIZES.get(classes, (side, side))
        short, stride = self.short_side or short, self.stride or stride
        return PreprocessConfig(
            mode="shortest",
            size=(short, short),
            interpolation="bilinear",
            window=(side, side),
            stride=(stride, stride),
        )
