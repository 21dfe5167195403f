"""How an unbounded number becomes a depth between `low` and `high` metres, and which number a depth came from."""

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
    """Clamps values but not gradients, so that a pixel beyond the range can come back."""
    return x.detach().clamp(low, high) + (x - x.detach())


def logit(share: float) -> float:
    return math.log(share / (1 - share))


ACTIVATIONS = {
    # Even in metres: Depth Anything's metric form, with a floor that its logarithm survives.
    "sigmoid": Activation(
        lambda x, low, high: low + (high - low) * x.sigmoid(),
        lambda depth, low, high: logit((depth - low) / (high - low)),
    ),
    # Even in ratios: equal steps of x change depth by equal percentages.
    "log": Activation(
        lambda x, low, high: low * (math.log(high / low) * x.sigmoid()).exp(),
        lambda depth, low, high: logit(math.log(depth / low) / math.log(high / low)),
    ),
    # x is log depth.
    "exp": Activation(
        lambda x, low, high: clamp_ste(x, math.log(low), math.log(high)).exp(),
        lambda depth, low, high: math.log(depth),
    ),
    # Even in metres, dead at the floor: DINOv2's DPT head.
    "relu": Activation(
        lambda x, low, high: low + F.relu(x),
        lambda depth, low, high: depth - low,
    ),
    # Even in metres, with no ceiling but the clamp.
    "softplus": Activation(
        lambda x, low, high: low + F.softplus(x),
        lambda depth, low, high: depth - low + math.log(-math.expm1(low - depth)),
    ),
}
