"""Activations that map logits to depth between `low` and `high` metres, with their inverses."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


class Activation(NamedTuple):
    depth: Callable[[Tensor, float, float], Tensor]  # of (x, low, high)
    inverse: Callable[[float, float, float], float]  # x of (depth, low, high)


def clamp_ste(x: Float[Tensor, "*shape"], low: float, high: float) -> Float[Tensor, "*shape"]:
    """Clamp with a straight-through gradient, so that pixels beyond the range still learn."""
    return x.detach().clamp(low, high) + (x - x.detach())


def logit(share: float) -> float:
    return math.log(share / (1 - share))


ACTIVATIONS = {
    # Linear in metres: Depth Anything's metric head, with a lower bound above 0 for the logarithm.
    "sigmoid": Activation(
        lambda x, low, high: low + (high - low) * x.sigmoid(),
        lambda depth, low, high: logit((depth - low) / (high - low)),
    ),
    # Linear in log depth.
    "log": Activation(
        lambda x, low, high: low * (math.log(high / low) * x.sigmoid()).exp(),
        lambda depth, low, high: logit(math.log(depth / low) / math.log(high / low)),
    ),
    # x is log depth.
    "exp": Activation(
        lambda x, low, high: clamp_ste(x, math.log(low), math.log(high)).exp(),
        lambda depth, low, high: math.log(depth),
    ),
    # Linear in metres, no gradient at the lower bound: DINOv2's DPT head.
    "relu": Activation(
        lambda x, low, high: low + F.relu(x),
        lambda depth, low, high: depth - low,
    ),
    # Linear in metres, bounded only by the clamp.
    "softplus": Activation(
        lambda x, low, high: low + F.softplus(x),
        lambda depth, low, high: depth - low + math.log(-math.expm1(low - depth)),
    ),
}
