"""Folders as `transformers` writes them: Depth Anything and DPT, with `config.json` and `preprocessor_config.json`.

Files keep the older names of attention (`attention.attention.query`); models of version 5 in memory have newer ones
(`attention.q_proj`), and both are read. A config leaves out what its class has as default, so the defaults stand here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.ops.packing import join_thirds, split_thirds
from densevit.structures import ModelCard
from densevit.weights.families import hugging_face_config as configs
from densevit.weights.families.dpt_tree import decoder_options
from densevit.weights.families.hugging_face_images import processor_of, read_processor
from densevit.weights.family import FAMILIES, Family
from densevit.weights.published import Found, Published
from densevit.weights.renaming import Renaming, Rule
from densevit.weights.spare import with_spare
from densevit.weights.vit_shapes import vit_options

Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]
THIRDS = {"q": "query", "k": "key", "v": "value"}


def dinov2_rules(stem: str, gated: bool) -> tuple[Rule, ...]:
    """DINOv2 in `transformers`; `stem` is what stands in front."""
    block, ours = f"{stem}encoder.layer.{{i}}.", "encoder.vit.blocks.{i}."
    fc1, fc2 = ("weights_in", "weights_out") if gated else ("fc1", "fc2")
    return (
        *embedding_rules(stem),
        *attention_rules(block),
        (f"{block}layer_scale1.lambda1", f"{ours}ls1.gamma"),
        (f"{block}layer_scale2.lambda1", f"{ours}ls2.gamma"),
        (f"{block}mlp.{fc1}.*", f"{ours}mlp.fc1.*"),
        (f"{block}mlp.{fc2}.*", f"{ours}mlp.fc2.*"),
        (f"{block}norm1.*", f"{ours}norm1.*"),
        (f"{block}norm2.*", f"{ours}norm2.*"),
    )


def vit_rules(stem: str) -> tuple[Rule, ...]:
    """The ViT inside DPT."""
    block, ours = f"{stem}encoder.layer.{{i}}.", "encoder.vit.blocks.{i}."
    return (
        *embedding_rules(stem),
        *attention_rules(block),
        (f"{block}intermediate.dense.*", f"{ours}mlp.fc1.*"),
        (f"{block}output.dense.*", f"{ours}mlp.fc2.*"),
        (f"{block}layernorm_before.*", f"{ours}norm1.*"),
        (f"{block}layernorm_after.*", f"{ours}norm2.*"),
    )


def embedding_rules(stem: str) -> tuple[Rule, ...]:
    return (
        (f"{stem}embeddings.cls_token", "encoder.vit.cls_token"),
        (f"{stem}embeddings.mask_token", "encoder.vit.mask_token"),
        (f"{stem}embeddings.position_embeddings", "encoder.vit.pos_embed"),
        (f"{stem}embeddings.patch_embeddings.projection.*", "encoder.vit.patch_embed.proj.*"),
        (f"{stem}layernorm.*", "encoder.vit.norm.*"),
    )


def attention_rules(block: str) -> tuple[Rule, ...]:
    """What files have comes first, for it is also what is written."""
    ours = "encoder.vit.blocks.{i}.attn."
    return (
        *((f"{block}attention.attention.{long}.*", f"{ours}{short}.*") for short, long in THIRDS.items()),
        (f"{block}attention.output.dense.*", f"{ours}proj.*"),
        *((f"{block}attention.{short}_proj.*", f"{ours}{short}.*") for short in THIRDS),
        (f"{block}attention.o_proj.*", f"{ours}proj.*"),
    )


NECK: tuple[Rule, ...] = (
    ("neck.reassemble_stage.readout_projects.{i}.0.*", "decoder.reassemble.{i}.readout.project.*"),
    ("neck.reassemble_stage.layers.{i}.projection.*", "decoder.reassemble.{i}.project.*"),
    ("neck.reassemble_stage.layers.{i}.resize.*", "decoder.reassemble.{i}.resize.*"),
    ("neck.convs.{i}.*", "decoder.reassemble.{i}.conv.*"),
    *(
        (f"neck.fusion_stage.layers.{3 - i}.{theirs}.*", f"decoder.fusions.{i}.{ours}.*")  # they count from the deepest
        for i in range(4)
        for theirs, ours in (
            ("projection", "out"),
            ("residual_layer1.convolution1", "level.conv1"),
            ("residual_layer1.convolution2", "level.conv2"),
            ("residual_layer2.convolution1", "refine.conv1"),
            ("residual_layer2.convolution2", "refine.conv2"),
            ("residual_layer1.batch_norm1", "level.norm1"),
            ("residual_layer1.batch_norm2", "level.norm2"),
            ("residual_layer2.batch_norm1", "refine.norm1"),
            ("residual_layer2.batch_norm2", "refine.norm2"),
        )
    ),
)
DEEPEST_UNIT = "neck.fusion_stage.layers.0.residual_layer1.*"  # stored, never run
DEPTH_ANYTHING_HEAD: tuple[Rule, ...] = (
    ("head.conv1.*", "heads.depth.projection.before.*"),
    ("head.conv2.*", "heads.depth.projection.after.0.*"),
    ("head.conv3.*", "heads.depth.projection.after.2.*"),
)
DPT_HEAD: tuple[Rule, ...] = (
    ("head.projection.*", "decoder.mix.0.*"),
    ("head.head.0.*", "heads.depth.projection.before.*"),
    ("head.head.2.*", "heads.depth.projection.after.0.*"),
    ("head.head.4.*", "heads.depth.projection.after.2.*"),
)


class HuggingFace(Family):
    """What both have in common.

    Attributes:
        kind: `model_type` of the config.
    """

    kind: ClassVar[str]
    licence = "see the folder's README"

    @classmethod
    def recognises(cls, found: Found) -> bool:
        return found.config.get("model_type") == cls.kind

    def publish(
        self,
        found: Found,
        names: Renaming,
        encoder: Mapping[str, Any],
        decoder: Mapping[str, Any],
        head: Mapping[str, Any],
    ) -> Published:
        """A model of these parts, on top of what the tensors' shapes say."""
        tensors = join_thirds(names.ours(found.tensors))
        options = {
            **vit_options(tensors, found.path, gated=encoder["mlp"] != "gelu", heads=encoder["heads"]),
            **encoder,
        }
        rule, multiple, values = read_processor(found, options["patch_size"])
        hidden = tensors["heads.depth.projection.after.0.weight"].shape[0]
        return Published(
            model={
                "encoder": {**options, **values},
                "decoder": {"type": "dpt", **decoder_options(tensors), **decoder},
                "heads": {"depth": {"align_corners": True, "hidden": hidden, **head}},
            },
            tensors=tensors,
            spare=names.unused(found.tensors),
            resize=rule,
            multiple=multiple,
            source=str(found.config.get("_name_or_path") or f"transformers, {self.kind}"),
            licence=self.licence,
        )


@FAMILIES.register("huggingface")
class DepthAnything(HuggingFace):
    """Depth Anything V1 and V2; the config tells the blocks that are read, and metres from inverse depth."""

    means = "a folder of transformers' DepthAnythingForDepthEstimation; its config says what it predicts"
    kind = "depth_anything"

    def read(self, found: Found) -> Published:
        found.need("backbone.embeddings.position_embeddings", "neck.convs.3.weight", "head.conv2.weight")
        backbone, taps = configs.read_dinov2(found)
        return self.publish(
            found,
            renaming(backbone["mlp"] != "gelu"),
            {**backbone, "taps": taps},
            {},
            configs.read_depth_anything_head(found),
        )

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        self.demand(card, encoder="vit", decoder="dpt")
        gated = card.model["encoder"]["mlp"] == "swiglu_packed"
        return renaming(gated).theirs(split_thirds(with_spare(tensors)))

    def describe(self, card: ModelCard) -> dict[str, Mapping[str, Any]]:
        return {"config.json": configs.depth_anything(card), "preprocessor_config.json": processor_of(card)}


def renaming(gated: bool) -> Renaming:
    rules = (*dinov2_rules("backbone.", gated), *NECK, *DEPTH_ANYTHING_HEAD)
    return Renaming(rules, ("backbone.embeddings.mask_token", DEEPEST_UNIT))


class DPT(HuggingFace):
    """DPT on a ViT or on DINOv2."""

    kind = "dpt"

    @classmethod
    def recognises(cls, found: Found) -> bool:
        return super().recognises(found) and "head.head.4.weight" in found.tensors

    def head(self) -> Mapping[str, Any]:
        return {"type": "disparity"}

    def read(self, found: Found) -> Published:
        found.need("neck.convs.3.weight", "head.head.4.weight")
        if found.config.get("is_hybrid"):
            raise CheckpointError(f"{found.path}: DPT-Hybrid in transformers' layout; load isl-org's own file instead.")
        if found.config.get("backbone_config"):
            backbone, taps = configs.read_dinov2(found)
            stem, rules = "backbone.", dinov2_rules("backbone.", backbone["mlp"] != "gelu")
        else:
            backbone, taps = configs.read_vit(found)
            stem, rules = "dpt.", vit_rules("dpt.")
        found.need(f"{stem}embeddings.position_embeddings")
        norm = [] if backbone["norm"] else [f"{stem}layernorm.*"]
        behind = [f"{stem}encoder.layer.{i}.*" for i in range(taps[-1] + 1, backbone["depth"])]
        spare = (f"{stem}embeddings.mask_token", DEEPEST_UNIT, *norm, *behind)
        return self.publish(
            found,
            Renaming((*rules, *NECK, *DPT_HEAD), spare),
            {**backbone, "taps": taps},
            configs.read_dpt_neck(found),
            self.head(),
        )


@FAMILIES.register("huggingface-dpt")
class Relative(DPT):
    """As MiDaS: Intel/dpt-large."""

    means = "a folder of transformers' DPTForDepthEstimation, relative: inverse depth without unit (Intel/dpt-large)"
    licence = "Apache-2.0"


@FAMILIES.register("huggingface-dpt-metric")
class Metric(DPT):
    """Metres, which neither the config nor the file says: facebook/dpt-dinov2-*-{nyu,kitti}."""

    means = (
        "a folder of transformers' DPTForDepthEstimation, metric: metres; give max_depth (10 for "
        "facebook/dpt-dinov2-*-nyu, 80 for -kitti)"
    )
    licence = "Apache-2.0"

    def __init__(self, *, max_depth: Metres) -> None:
        self.max_depth = max_depth

    def head(self) -> Mapping[str, Any]:
        grown = {"scale": 2, "stretch": "bicubic"}
        return {"type": "metric", "max_depth": self.max_depth, "min_depth": 0.0, "activation": "relu", **grown}
