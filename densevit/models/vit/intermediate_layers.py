"""Tokens after a block, some of them, and as a map. b images, n = p + cells tokens (p prefix, first), d channels."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.errors import DensevitError


class BlockOutput(NamedTuple):
    """The tokens after one block."""

    patches: Float[Tensor, "b cells d"]  # row by row
    prefix: Float[Tensor, "b p d"]  # class token, then registers


def keep_patches(
    tokens: Float[Tensor, "b n d"], kept: Int64[Tensor, "b kept"], prefix_tokens: int
) -> Float[Tensor, "b visible d"]:
    """The prefix, and some patches of each image in the order of `kept`."""
    prefix, patches = tokens[:, :prefix_tokens], tokens[:, prefix_tokens:]
    return torch.cat([prefix, patches.gather(1, kept[..., None].expand(-1, -1, tokens.shape[-1]))], dim=1)


def as_map(tokens: Float[Tensor, "b cells d"], grid: tuple[int, int]) -> Float[Tensor, "b d gh gw"]:
    """Tokens as a feature map: a view in channels-last memory."""
    if tokens.shape[1] != grid[0] * grid[1]:
        raise DensevitError(f"{tokens.shape[1]} patches are no {grid[0]}x{grid[1]} grid.")
    return tokens.reshape(tokens.shape[0], *grid, tokens.shape[-1]).permute(0, 3, 1, 2)
