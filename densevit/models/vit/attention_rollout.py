"""Pictures of attention, from its weights. b images, q askers among n tokens (prefix in front), gh x gw cells.

The functions on weights take anybody's; those on a model take ours.
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
    """What the first token takes from every patch; the share of class and registers is missing from the sum.

    Args:
        weights: per layer; of all rows or just the first.
    """
    rows = torch.stack([layer[:, :, 0, prefix_tokens:] for layer in weights])
    return rows.reshape(*rows.shape[:-1], *grid)


def class_attention(
    vit: IntermediateLayersMixin, image: Float[Tensor, "b c h w"], layers: Layers = None
) -> Float[Tensor, "layers b heads gh gw"]:
    """Where the class token of each layer and head looks; no n x n map is ever made.

    Raises:
        ConfigError: the model has no class token.
    """
    require_class(vit)
    return class_to_patches(vit.attention(image, layers, CLASS), vit.prefix_tokens, vit.grid_of(image))


def rollout(
    weights: Iterable[Float[Tensor, "b heads n n"]], *, heads: Heads = "mean", discard: float = 0.0
) -> Float[Tensor, "b n n"]:
    """How much of each input token has reached each output token, skip connections counted as half (Abnar &
    Zuidema 2020): the product of (A + I) / 2 over the layers; rows sum to one.

    Args:
        weights: of all layers, from the first on; taken one at a time.
        heads: how a layer's heads become one map.
        discard: share of each layer's weakest weights to take as zero, which makes the picture calmer.
    """
    flow: Tensor | None = None
    for layer in weights:
        mixed = keep_strongest(merge(layer, heads), 1 - discard)
        mixed = mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        flow = mixed if flow is None else mixed @ flow
    assert flow is not None
    return flow


def class_rollout(
    vit: IntermediateLayersMixin, image: Float[Tensor, "b c h w"], *, heads: Heads = "mean", discard: float = 0.0
) -> Float[Tensor, "b gh gw"]:
    """How much of each patch has reached the last class token; never holds more than one layer's weights.

    Raises:
        ConfigError: the model has no class token.
    """
    require_class(vit)
    flow = rollout(vit.attention(image), heads=heads, discard=discard)
    return flow[:, 0, vit.prefix_tokens :].reshape(-1, *vit.grid_of(image))


def merge(weights: Float[Tensor, "b heads n n"], heads: Heads) -> Float[Tensor, "b n n"]:
    if heads == "mean":
        return weights.mean(dim=1)
    return weights.amax(dim=1) if heads == "max" else weights.amin(dim=1)


def keep_strongest(weights: Float[Tensor, "b n n"], share: float) -> Float[Tensor, "b n n"]:
    """Zeroes all but the strongest `share` of each row."""
    count = max(1, round(weights.shape[-1] * share))
    if count == weights.shape[-1]:
        return weights
    floor = weights.topk(count, dim=-1).values[..., -1:]
    return weights.where(weights >= floor, 0.0)


def require_class(vit: IntermediateLayersMixin) -> None:
    if not vit.has_class_token:
        raise ConfigError("this ViT has no class token, so nobody looks for the whole image; use vit.attention().")
