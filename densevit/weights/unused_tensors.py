"""Tensors that published layouts store and no model runs: kept beside ours, or made up for loaders that insist."""

from collections.abc import Mapping

import torch
from torch import Tensor

PREFIX = "spare."
"""What stands in front of their names in our files."""


def add_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Adds, as zeros where they are absent, DINOv2's mask token and the deepest fusion's residual unit."""
    full = dict(tensors)
    full.setdefault("encoder.vit.mask_token", torch.zeros(1, tensors["encoder.vit.cls_token"].shape[-1]))
    for name, tensor in tensors.items():
        if name.startswith("decoder.fusions.3.refine."):
            full.setdefault(name.replace(".refine.", ".level."), torch.zeros_like(tensor))
    return full


def prefix_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Under names for our files, whose readers pass over them."""
    return {PREFIX + name: tensor for name, tensor in tensors.items()}


def split_unused(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a file of ours holds: the model's tensors, and the spare ones under their own names."""
    spare = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}, spare
