"""Attention maps of the class token and attention rollout. b images, n tokens (prefix first), gh x gw cells.

Functions of weights work for any model; those of a model take densevit's ViT.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.vit.intermediate_layers import IntermediateLayersMixin, Layers

Heads = Literal["mean", "max", "min"]
CLASS = slice(1)  # the class token's row


def class_to_patches(
    weights: Iterable[Float[Tensor, "b heads _ n"]], prefix_tokens: int, grid: tuple[int, int]
) -> Float[Tensor, "layers b heads gh gw"]:
    """Attention of the first token to every patch, without class and register tokens, so that it sums to less than 1.
    `weights`: per layer; of all queries or only the first."""
    rows = torch.stack([layer[:, :, 0, prefix_tokens:] for layer in weights])
    return rows.reshape(*rows.shape[:-1], *grid)


def class_attention(
    vit: IntermediateLayersMixin, image: Float[Tensor, "b c h w"], layers: Layers = None
) -> Float[Tensor, "layers b heads gh gw"]:
    """Attention of the class token to the patches, per layer and head; n x n weights are never computed. Raises
    ConfigError if the model has no class token."""
    require_class_token(vit)
    return class_to_patches(vit.attention(image, layers, CLASS), vit.prefix_tokens, vit.grid_of(image))


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


def class_rollout(
    vit: IntermediateLayersMixin, image: Float[Tensor, "b c h w"], *, heads: Heads = "mean", discard: float = 0.0
) -> Float[Tensor, "b gh gw"]:
    """Rollout from the patches to the last class token; holds the weights of one layer at a time. Raises ConfigError if
    the model has no class token."""
    require_class_token(vit)
    flow = rollout(vit.attention(image), heads=heads, discard=discard)
    return flow[:, 0, vit.prefix_tokens :].reshape(-1, *vit.grid_of(image))


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


def require_class_token(vit: IntermediateLayersMixin) -> None:
    if not vit.has_class_token:
        raise ConfigError("this ViT has no class token; use vit.attention() for the weights of all tokens.")
