"""Attention rollout. b images, n tokens (prefix first)."""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Heads = Literal["mean", "max", "min"]
CLASS = slice(1)  # the class token's row


def rollout(
    weights: Iterable[Float[Tensor, "b heads n n"]], *, heads: Heads = "mean", discard: float = 0.0
) -> Float[Tensor, "b n n"]:
    """Attention rollout (Abnar & Zuidema 2020): the product of (A + I) / 2 over the layers; rows sum to one.

    Args:
        weights: of all layers, from the first on; taken one at a time.
        heads: how the heads of a layer are combined.
        discard: fraction of each layer's smallest weights to set to zero, for less noise.
    """
    flow: Tensor | None = None
    for layer in weights:
        mixed = keep_strongest(reduce_heads(layer, heads), 1 - discard)
        mixed = mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        flow = mixed if flow is None else mixed @ flow
    assert flow is not None
    return flow


def reduce_heads(weights: Float[Tensor, "b heads n n"], heads: Heads) -> Float[Tensor, "b n n"]:
    if heads == "mean":
        return weights.mean(dim=1)
    return weights.amax(dim=1) if heads == "max" else weights.amin(dim=1)


def keep_strongest(weights: Float[Tensor, "b n n"], share: float) -> Float[Tensor, "b n n"]:
    """Sets all but the largest fraction `share` of each row to zero."""
    count = max(1, round(weights.shape[-1] * share))
    if count == weights.shape[-1]:
        return weights
    threshold = weights.topk(count, dim=-1).values[..., -1:]
    return weights.where(weights >= threshold, 0.0)
