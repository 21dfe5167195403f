"""Temporal gradient matching (Video Depth Anything, Chen et al. 2025): depth changes over time as the true depth does.

b clips of t frames each, h x w pixels.
"""

from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from densevit.losses.depth import depth_loss
from densevit.losses.reduction import MIN_DEPTH, Depth, Pool, Scalar, Valid, measured, pooled_mean
from densevit.losses.ssi import KINDS, as_clips, fitted
from densevit.structures import DepthKind

Space = Literal["disparity", "depth", "log_depth"]


def depth_kinds(*, space: Space, **options: object) -> tuple[DepthKind, ...]:
    return ("metric", "relative") if space == "log_depth" else KINDS[space]


@depth_loss("temporal_gradient", depth_kinds)
def temporal_gradient(
    pred: Depth,
    target: Depth,
    valid: Valid,
    *,
    space: Space = "disparity",
    threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05,
    pool: Pool = "image",
    clip_length: int = 1,
) -> Scalar:
    """Return the mean of |(p[i+1] - p[i]) - (g[i+1] - g[i])| over pixels that are measured in both frames and whose
    ground truth changes by less than a share `threshold` of its range in the later frame; 0 for single images.

    The prediction is brought onto the ground truth by one scale and shift per clip, least squares. In `log_depth` a
    scale cancels, nothing is fitted, and the ground truth changes by less than `threshold` itself. With `pool` image
    there is a value per clip. It is for data with `clip`; Video Depth Anything adds it with weight 10 to `ssi` and
    `ssi_gradient`.

    Args:
        space: what the head's output is affine to, or log_depth for heads that give metres.
        threshold: changes of the ground truth that count are smaller; as a share of its range in a frame, of log_depth
            as they are.
    """
    pred, target, mask = measured(pred, target, valid)
    if space == "disparity":
        target = target.clamp_min(MIN_DEPTH).reciprocal()
    elif space == "log_depth":
        pred, target = pred.clamp_min(MIN_DEPTH).log(), target.log()
    p, g, m = (as_clips(x, clip_length).view(-1, clip_length, x[0].numel()) for x in (pred, target, mask))
    if space != "log_depth":
        p = fitted(p.flatten(1), g.flatten(1), m.flatten(1)).view_as(p)
    changes = g.diff(dim=1)
    still = m[:, 1:] & m[:, :-1] & (changes.abs() < threshold * (1.0 if space == "log_depth" else extent(g, m)[:, 1:]))
    errors = torch.where(still, p.diff(dim=1) - changes, 0.0).abs()
    together = (len(p), -1) if pool == "image" else (1, -1)
    loss = pooled_mean(errors.reshape(together).sum(1), still.reshape(together).sum(1), pool)
    return loss + 0 * p.sum()  # a NaN prediction is not hidden by pixels that do not count


def extent(values: Float[Tensor, "b t p"], mask: Bool[Tensor, "b t p"]) -> Float[Tensor, "b t 1"]:
    """Return the largest minus smallest value of each frame; negative where none is known."""
    high = torch.where(mask, values, -torch.inf).amax(-1, keepdim=True)
    return high - torch.where(mask, values, torch.inf).amin(-1, keepdim=True)
