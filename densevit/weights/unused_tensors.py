"""Tensors that published layouts store and no forward pass uses: kept in our files, or added for strict loaders."""

from collections.abc import Mapping

import torch
from torch import Tensor

PREFIX = "spare."
"""Prefix of their names in our files."""


def add_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Adds DINOv2's mask token and the deepest fusion's residual unit, as zeros if absent."""
    full = dict(tensors)
    full.setdefault("encoder.vit.mask_token", torch.zeros(1, tensors["encoder.vit.cls_token"].shape[-1]))
    for name, tensor in tensors.items():
        if name.startswith("decoder.fusions.3.refine."):
            full.setdefault(name.replace(".refine.", ".level."), torch.zeros_like(tensor))
    return full


def prefix_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Under the names in our files."""
    return {PREFIX + name: tensor for name, tensor in tensors.items()}


def split_unused(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Splits the tensors of our file into the model's and the unused ones, these under their own names."""
    unused = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}, unused
