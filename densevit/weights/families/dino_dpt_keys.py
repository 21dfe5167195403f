"""The DPT head of DINOv2 and DINOv3 as our decoder `dpt`; both number fusions from the deepest.

Its fusions double the map and resize the next level to it; a last 3x3 convolution follows.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from densevit.weights.key_mapping import Rule

RULES: tuple[Rule, ...] = (
    ("reassemble_blocks.projects.{i}.conv.*", "decoder.reassemble.{i}.project.*"),
    ("reassemble_blocks.resize_layers.{i}.*", "decoder.reassemble.{i}.resize.*"),
    ("reassemble_blocks.readout_projects.{i}.0.*", "decoder.reassemble.{i}.readout.project.*"),
    ("reassemble_blocks.batchnorm_layers.{i}.*", "decoder.reassemble.{i}.norm.*"),
    ("convs.{i}.conv.*", "decoder.reassemble.{i}.conv.*"),
    *(
        (f"fusion_blocks.{3 - i}.{theirs}.conv.*", f"decoder.fusions.{i}.{ours}.*")
        for i in range(4)
        for theirs, ours in (
            ("project", "out"),
            ("res_conv_unit1.conv{n}", "level.conv{n}"),
            ("res_conv_unit2.conv{n}", "refine.conv{n}"),
        )
    ),
    ("project.conv.*", "decoder.mix.0.*"),
    ("conv_depth.head.0.*", "heads.depth.projection.before.*"),
    ("conv_depth.head.2.*", "heads.depth.projection.after.0.*"),
    ("conv_depth.head.4.*", "heads.depth.projection.after.2.*"),
)
MARKS = (*(f"reassemble_blocks.projects.{i}.conv.weight" for i in range(4)), "conv_depth.head.4.weight")


def decoder(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the options of `dpt` for a head under its own names, which all of `MARKS` are among."""
    projects = [tensors[name] for name in MARKS[:4]]
    return {
        "type": "dpt",
        "channels": tensors["conv_depth.head.0.weight"].shape[1],
        "hidden": [project.shape[0] for project in projects],
        "readout": "project" if "reassemble_blocks.readout_projects.0.0.weight" in tensors else "ignore",
        "reassemble_norm": "batch" if "reassemble_blocks.batchnorm_layers.0.weight" in tensors else "none",
        "residual_bias": "fusion_blocks.0.res_conv_unit2.conv1.conv.bias" in tensors,
        "mix": "project.conv.weight" in tensors,
        "fusion_size": "double",
        "align_corners": True,
    }


def hidden(tensors: Mapping[str, Tensor]) -> int:
    """Return the channels after the head's upsampling."""
    return int(tensors["conv_depth.head.2.weight"].shape[0])
