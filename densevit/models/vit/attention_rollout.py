"""Attention rollout. b images, n tokens (prefix first)."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor


def rollout(weights: Iterable[Float[Tensor, "b heads n n"]]) -> Float[Tensor, "b n n"]:
    """Attention rollout (Abnar & Zuidema 2020): the product of (A + I) / 2 over the layers, of which A is the mean of
    the heads; rows sum to one. `weights`: of all layers, from the first on; taken one at a time."""
    flow: Tensor | None = None
    for layer in weights:
        mixed = layer.mean(dim=1)
        mixed = (mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)) / 2
        flow = mixed if flow is None else mixed @ flow
    assert flow is not None
    return flow
