"""Names of tensors in folders of transformers' Depth Anything and DPT, and ours.

Files keep the older names of attention (`attention.attention.query`); models of version 5 in memory have newer ones
(`attention.q_proj`), and both are read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from densevit.weights.key_mapping import Rule

THIRDS = {"q": "query", "k": "key", "v": "value"}


def dinov2_rules(stem: str, gated: bool) -> tuple[Rule, ...]:
    """Return the rules of DINOv2 in `transformers`; `stem` is what stands in front."""
    block, ours = f"{stem}encoder.layer.{{i}}.", "encoder.vit.blocks.{i}."
    fc1, fc2 = ("weights_in", "weights_out") if gated else ("fc1", "fc2")
    return (
        *embedding_rules(stem),
        *attention_rules(block),
        (f"{block}layer_scale{{n}}.lambda1", f"{ours}ls{{n}}.gamma"),
        (f"{block}mlp.{fc1}.*", f"{ours}mlp.fc1.*"),
        (f"{block}mlp.{fc2}.*", f"{ours}mlp.fc2.*"),
        (f"{block}norm{{n}}.*", f"{ours}norm{{n}}.*"),
    )


def vit_rules(stem: str) -> tuple[Rule, ...]:
    """Return the ViT inside DPT."""
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
    """Return the names in files first, because they are also written."""
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
        (f"neck.fusion_stage.layers.{3 - i}.{theirs}.*", f"decoder.fusions.{i}.{ours}.*")  # numbered from the deepest
        for i in range(4)
        for theirs, ours in (
            ("projection", "out"),
            ("residual_layer1.convolution{n}", "level.conv{n}"),
            ("residual_layer1.batch_norm{n}", "level.norm{n}"),
            ("residual_layer2.convolution{n}", "refine.conv{n}"),
            ("residual_layer2.batch_norm{n}", "refine.norm{n}"),
        )
    ),
)
DEEPEST_UNIT = "neck.fusion_stage.layers.0.residual_layer1.*"  # stored, never used
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


def unused_backbone_tensors(stem: str, backbone: Mapping[str, Any], out_indices: Sequence[int]) -> tuple[str, ...]:
    """Return the unused tensors of files: blocks after the last out index, and a norm that is not applied."""
    norm = () if backbone["norm"] else (f"{stem}layernorm.*",)
    behind = (f"{stem}encoder.layer.{i}.*" for i in range(out_indices[-1] + 1, backbone["depth"]))
    return (f"{stem}embeddings.mask_token", DEEPEST_UNIT, *norm, *behind)
