"""EoMT on DINOv2 (Kerssies et al. 2025): queries in the last blocks of the encoder.

Files of https://github.com/tue-mps/eomt and folders of transformers' EomtForUniversalSegmentation hold the same model
under other names. Semantic, panoptic and instance models have the same tensors; what tells them apart is the number of
their classes and queries, and of a folder the processor. Those on DINOv3 are published as differences to weights with
another licence and are not read.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.ops.matrices import fuse_qkv, split_qkv
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, IMAGENET, ConvertedCheckpoint, RawCheckpoint, WritableFamily
from densevit.weights.families.huggingface.config import check_fixed, class_names, mlp_ratio, normalisation
from densevit.weights.key_mapping import STEM, KeyMapping, Rule, vit_options

Kind = Literal["labels", "panoptic", "instances"]
COCO_PANOPTIC, COCO_THINGS = 133, 80
PANOPTIC_QUERIES = 200  # of the published panoptic and instance models; semantic ones have 100
NO_OBJECT = 0.1
BLOCK, OURS = "layers.{i}.", f"{STEM}blocks.{{i}}."  # of transformers and here
# Of a folder's config and processor: what they leave out, and values that our components have no option for.
PROCESSOR: Mapping[str, Any] = {
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": IMAGENET["mean"],
    "image_std": IMAGENET["std"],
}  # fmt: skip
FIXED: Mapping[str, Any] = {"hidden_act": "gelu", "do_resize": True, "resample": 2}
HEADS: Mapping[str, str] = {"labels": "mask_logits", "panoptic": "panoptic", "instances": "instances"}


class EoMTFamily(WritableFamily):
    """Both layouts."""

    licence = "MIT"
    rules: ClassVar[Sequence[Rule]]
    gated_rules: ClassVar[Sequence[Rule]] = ()  # before the others, for a SwiGLU
    spare: ClassVar[Sequence[str]]  # tensors that no forward pass uses
    probabilities: ClassVar[str]  # the tensor of masked attention, one number for each block with queries

    def __init__(
        self,
        *,
        blocks: Annotated[int, Field(gt=0)] = 4,
        kind: Kind | None = None,
        things: tuple[int, ...] | None = None,
    ) -> None:
        """
        Args:
            blocks: number of blocks with queries, if the file does not tell.
            kind: what it predicts: labels, panoptic or instances; null: by its classes, queries or processor.
            things: of a panoptic model, the classes of single objects; null: the first 80 of COCO's 133.
        """
        self.blocks, self.kind, self.things = blocks, kind, things
        self.names: tuple[str, ...] = ()  # of the classes, which a file does not tell

    def keys(self, gated: bool) -> KeyMapping:
        return KeyMapping((*(self.gated_rules if gated else ()), *self.rules), self.spare)

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        tensors = self.renamed(raw)
        queries, count = tensors["decoder.q.weight"].shape[0], tensors["decoder.class_head.weight"].shape[0] - 1
        probabilities = raw.tensors.get(self.probabilities)
        encoder = encoder_options(tensors, raw)
        side = (encoder["image_size"],) * 2
        kind = self.kind or self.guess(raw, queries, count)
        names = self.names or class_names(raw, count)
        classes = count if names == tuple(map(str, range(count))) else names
        decoder = {
            "type": "eomt", "classes": classes, "queries": queries,
            "blocks": self.blocks if probabilities is None else len(probabilities),
        }  # fmt: skip
        head: dict[str, Any] = {"type": HEADS[kind], "classes": classes}
        resize: dict[str, Any] = {"mode": "shortest", "window": side} if kind == "labels" else {"mode": "padded"}
        if kind != "labels":
            decoder["segments"] = True
            head["things"] = self.things or (tuple(range(COCO_THINGS)) if count == COCO_PANOPTIC else None)
        return ConvertedCheckpoint(
            model={"encoder": encoder, "decoder": decoder, "heads": {kind: head}},
            tensors=tensors,
            resize=PreprocessConfig(
                size=side,
                interpolation="bilinear",
                antialias=True,
                round_to_uint8=True,
                **resize,
            ),
            source=f"EoMT, {encoder['depth']} blocks of {encoder['dim']} channels (tue-mps/eomt)",
            licence=self.licence,
        )

    def renamed(self, raw: RawCheckpoint) -> dict[str, Tensor]:
        gated = any(".mlp.weights_in." in name for name in raw.tensors)
        return self.keys(gated).to_densevit(raw.tensors)

    def guess(self, raw: RawCheckpoint, queries: int, classes: int) -> Kind:
        """Return what the model predicts, by the published ones."""
        if classes == COCO_THINGS:
            return "instances"
        return "panoptic" if classes == COCO_PANOPTIC or queries == PANOPTIC_QUERIES else "labels"

    @classmethod
    def writer(cls, card: ModelCard) -> "EoMTFamily":
        output = next(iter(card.outputs.values()))
        kind: Any = output.kind
        family = cls(blocks=card.model["decoder"].get("blocks", 4), kind=kind, things=output.things or None)
        family.names = output.classes
        return family

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        self.check_components(card, encoder="vit", decoder="eomt")
        weight = torch.ones(tensors["decoder.class_head.weight"].shape[0])
        weight[-1] = NO_OBJECT
        written = self.keys(card.model["encoder"]["mlp"] != "gelu").to_original(tensors)
        return written | {self.probabilities: torch.zeros(self.blocks), "criterion.empty_weight": weight}

    def unsaid(self, raw: RawCheckpoint) -> list[str]:
        ((kind, head),) = type(self)().read(raw).model["heads"].items()
        things = list(self.things or ())
        given = [f"kind={self.kind}"] if self.kind != kind else []
        given += [f"things={things}"] if things and things != list(head.get("things") or ()) else []
        notes = [f"read it with --family-options '{','.join(given)}', which nothing there says."] if given else []
        unnamed = isinstance(head["classes"], int) and self.names != tuple(map(str, range(head["classes"])))
        return notes + (["the names of its classes have no place there."] if unnamed else [])


@FAMILIES.register("eomt")
class EoMT(EoMTFamily):
    """Every size on DINOv2, with registers or without."""

    description = "EoMT on DINOv2: classes of pixels, panoptic segments or instances"
    TOWER = "network.encoder.backbone."
    MARKS = ("network.q.weight", "network.class_head.weight", f"{TOWER}blocks.0.attn.qkv.weight", f"{TOWER}pos_embed")
    rules = ((f"{TOWER}*", f"{STEM}*"), ("network.*", "decoder.*"))
    spare = ("network.encoder.pixel_*", "network.attn_mask_probs", "criterion.*")
    probabilities = "network.attn_mask_probs"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.has(*cls.MARKS)

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        raw.need(*self.MARKS)
        return super().read(raw)

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        numbers = {f"network.encoder.pixel_{k}": torch.tensor(v).view(1, 3, 1, 1) for k, v in IMAGENET.items()}
        return super().write(tensors, card) | numbers


@FAMILIES.register("huggingface-eomt")
class TransformersEoMT(EoMTFamily):
    """Its config names the classes; a processor that splits images is of a semantic model."""

    description = "a folder of transformers' EomtForUniversalSegmentation: classes of pixels, segments or instances"

    gated_rules = (
        (f"{BLOCK}mlp.weights_in.*", f"{OURS}mlp.fc1.*"), (f"{BLOCK}mlp.weights_out.*", f"{OURS}mlp.fc2.*")
    )  # fmt: skip
    rules = (
        ("embeddings.cls_token", f"{STEM}cls_token"),
        ("embeddings.register_tokens", f"{STEM}reg_token"),
        ("embeddings.position_embeddings.weight", f"{STEM}pos_embed"),
        ("embeddings.patch_embeddings.projection.*", f"{STEM}patch_embed.proj.*"),
        ("layernorm.*", f"{STEM}norm.*"),
        *((f"{BLOCK}attention.{x}_proj.*", f"{OURS}attn.{x}.*") for x in "qkv"),
        (f"{BLOCK}attention.out_proj.*", f"{OURS}attn.proj.*"),
        (f"{BLOCK}layer_scale{{n}}.lambda1", f"{OURS}ls{{n}}.gamma"),
        (f"{BLOCK}*", f"{OURS}*"),
        ("query.*", "decoder.q.*"),
        ("upscale_block.block.{i}.layernorm2d.*", "decoder.upscale.{i}.norm.*"),
        ("upscale_block.block.{i}.*", "decoder.upscale.{i}.*"),
        *((f"mask_head.fc{i + 1}.*", f"decoder.mask_head.{2 * i}.*") for i in range(3)),
        ("class_predictor.*", "decoder.class_head.*"),
    )
    spare = ("attn_mask_probs", "criterion.*")
    probabilities = "attn_mask_probs"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return raw.config.get("model_type") in ("eomt", "eomt_dinov3")

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        """Raise CheckpointError: on DINOv3, options that our components do not have, or attention that is masked in
        inference."""
        if raw.config.get("model_type") == "eomt_dinov3":
            raise CheckpointError(f"{raw.path}: EoMT on DINOv3; only models on DINOv2 are read (model_type eomt).")
        checkpoint = super().read(raw)
        size = {f"size {key}": side for key, side in (raw.preprocessor.get("size") or {}).items() if side}
        fixed = {**FIXED, **dict.fromkeys(size, checkpoint.model["encoder"]["image_size"])}
        check_fixed(raw, {**raw.config, **raw.preprocessor, **size}, fixed)
        if raw.has(self.probabilities) and raw.tensors[self.probabilities].any():
            raise CheckpointError(
                f"{raw.path}: masks the attention of its last blocks, as in the middle of a training; the "
                f"{self.probabilities} of a finished one are 0."
            )
        return checkpoint

    def renamed(self, raw: RawCheckpoint) -> dict[str, Tensor]:
        raw.need("query.weight", "class_predictor.weight", "embeddings.position_embeddings.weight")
        tensors = fuse_qkv(super().renamed(raw))
        return tensors | {f"{STEM}pos_embed": tensors[f"{STEM}pos_embed"][None]}

    def guess(self, raw: RawCheckpoint, queries: int, classes: int) -> Kind:
        if raw.preprocessor.get("do_split_image"):
            return "labels"
        return "instances" if classes == COCO_THINGS else "panoptic"

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        split = split_qkv(tensors)
        return super().write(split | {f"{STEM}pos_embed": split[f"{STEM}pos_embed"][0]}, card)

    def describe(self, card: ModelCard) -> dict[str, Mapping[str, Any]]:
        encoder, decoder = card.model["encoder"], card.model["decoder"]
        output = next(iter(card.outputs.values()))
        sides = {"shortest_edge": encoder["image_size"], "longest_edge": encoder["image_size"]}
        semantic = output.kind == "labels"
        config = {
            "architectures": ["EomtForUniversalSegmentation"], "model_type": "eomt", "hidden_size": encoder["dim"],
            "num_hidden_layers": encoder["depth"], "num_attention_heads": encoder["heads"],
            "image_size": encoder["image_size"], "patch_size": encoder["patch_size"], "mlp_ratio": mlp_ratio(encoder),
            "use_swiglu_ffn": encoder["mlp"] != "gelu", "layer_norm_eps": encoder["eps"],
            "num_blocks": self.blocks, "num_queries": decoder["queries"],
            "num_register_tokens": encoder.get("registers", 0), "num_upscale_blocks": 2,
            "id2label": {str(i): name for i, name in enumerate(output.classes)},
            "label2id": {name: i for i, name in enumerate(output.classes)},
        }  # fmt: skip
        processor = {
            "image_processor_type": "EomtImageProcessor", "do_resize": True, "resample": 2, "do_rescale": True,
            "do_normalize": True, "image_mean": list(card.mean), "image_std": list(card.std),
            "size": {**sides, "longest_edge": None} if semantic else sides, "do_split_image": semantic,
            "do_pad": not semantic,
        }  # fmt: skip
        return {"config.json": config, "preprocessor_config.json": processor}


def encoder_options(tensors: Mapping[str, Tensor], raw: RawCheckpoint) -> dict[str, Any]:
    """Return the encoder `vit` for DINOv2 under our names; beside registers, only patches have positions."""
    registers = tensors.get(f"{STEM}reg_token")
    positions = tensors[f"{STEM}pos_embed"]
    side = round(positions.shape[1] ** 0.5)
    only_patches = side**2 == positions.shape[1]
    whole = positions[:, [0, *range(positions.shape[1])]] if only_patches else positions
    fc1, fc2 = (tensors[f"{STEM}blocks.0.mlp.fc{i}.weight"].shape for i in (1, 2))
    options = vit_options({**tensors, f"{STEM}pos_embed": whole}, raw.path, gated=fc1[0] == 2 * fc2[1])
    if heads := raw.config.get("num_attention_heads"):
        options["heads"] = heads
    options |= {"out_indices": (options["depth"] - 1,), "norm": True, "pos_embed_interpolation": "antialias"}
    options |= {"eps": raw.config.get("layer_norm_eps", 1e-6), **normalisation({**PROCESSOR, **raw.preprocessor})}
    return (
        options
        | ({} if registers is None else {"registers": registers.shape[1]})
        | ({"no_embed_class": True} if only_patches else {})
    )
