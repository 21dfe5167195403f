"""Features of a trained encoder held close to those of a frozen one. b images, c channels, h x w cells."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def feature_alignment(
    student: Float[Tensor, "b c h w"], frozen: Float[Tensor, "b c h w"], margin: float = 0.85
) -> Float[Tensor, ""]:
    """1 - cosine of each cell's features, 0 where the cosine is the margin or more, averaged over all cells.

    Depth Anything (arXiv:2401.10891, eq. 9 and its tolerance margin alpha): a frozen DINOv2 gives all parts of an
    object alike features, so that depth, which differs inside it, must not be held to them exactly.
    """
    cosine = F.cosine_similarity(student.float(), frozen.float(), dim=1)
    return ((1 - cosine) * (cosine < margin)).mean()
