"""Logits of pixels to class ids."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.structures import IGNORE


def argmax_or_ignore(logits: Float[Tensor, "b k h w"]) -> Int64[Tensor, "b h w"]:
    """The class of each pixel; IGNORE where the logits are not all finite, as outside a window."""
    return torch.where(logits.isfinite().all(1), logits.argmax(1), IGNORE)
