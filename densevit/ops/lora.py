"""Low-rank updates of weight matrices. o outputs, i inputs, r rank."""

from jaxtyping import Float
from torch import Tensor


def merge(
    weight: Float[Tensor, "o i"],
    a: Float[Tensor, "r i"],
    b: Float[Tensor, "o r"],
    scale: float,
    magnitude: Float[Tensor, " o"] | None = None,
) -> Float[Tensor, "o i"]:
    """W + scale B A (LoRA, Hu et al. 2022); with a magnitude its rows are rescaled to it (DoRA, Liu et al. 2024).

    Computed in fp32, whatever the type of the weight, which it is given back in.
    """
    merged = weight.float() + scale * (b.float() @ a.float())
    if magnitude is not None:
        merged = merged * (magnitude.float() / merged.norm(dim=1))[:, None]
    return merged.to(weight.dtype)
