"""Sampling of maps and labels at points, as in PointRend (Kirillov et al. 2020): a few thousand instead of all pixels.

n maps, b images, p points; a point is (x, y), 0 at the left or upper edge of the image and 1 at the other. Labels are
ids of classes or segments, VOID where unknown; other ids below 0 are outside of every mask.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.structures import Size

VOID = -1

Points = Float[Tensor, "n p 2"]


def random_points(n: int, p: int, device: torch.device) -> Points:
    """Draw points uniformly over the image."""
    return torch.rand(n, p, 2, device=device)


def uncertain_points(
    logits: Float[Tensor, "n h w"],
    labels: Int64[Tensor, "b height width"],
    owner: Int64[Tensor, " n"],
    p: int,
    *,
    oversample: float,
    importance: float,
) -> Points:
    """Draw by importance sampling: a share `importance` of the points lies where masks are uncertain, the others
    anywhere. `owner`: the image that each mask belongs to; `oversample`: candidates per point, of which the most
    uncertain are taken."""
    important = round(importance * p)
    candidates = random_points(len(logits), int(oversample * p), logits.device)
    uncertainty = -point_sample(logits, candidates).abs()
    uncertainty = uncertainty.masked_fill(nearest_labels(labels, owner, candidates) == VOID, float("-inf"))
    indices = uncertainty.topk(important, dim=1).indices
    best = candidates.gather(1, indices[..., None].expand(-1, -1, 2))
    return torch.cat([best, random_points(len(logits), p - important, logits.device)], dim=1)


def point_sample(maps: Float[Tensor, "n h w"], points: Points) -> Float[Tensor, "n p"]:
    """Return the bilinear samples; zero padding outside, as detectron2's point_sample."""
    return F.grid_sample(maps[:, None], 2 * points[:, None] - 1, align_corners=False)[:, 0, 0]


def in_pixels(points: Points, size: Size) -> Points:
    """Return the points of an image h x w; its size is not made a tensor, which a GPU would be waited for."""
    return torch.stack([points[..., 0] * size[1], points[..., 1] * size[0]], dim=-1)


def nearest_labels(labels: Int64[Tensor, "b h w"], owner: Int64[Tensor, " n"], points: Points) -> Int64[Tensor, "n p"]:
    h, w = labels.shape[-2:]
    x, y = in_pixels(points, (h, w)).long().unbind(-1)
    return labels[owner[:, None], y.clamp(0, h - 1), x.clamp(0, w - 1)]


def sample_label_masks(
    labels: Int64[Tensor, "b h w"], owner: Int64[Tensor, " n"], ids: Int64[Tensor, " n"], points: Points
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
    """Return `point_sample` of the mask of each label, and the share of the pixels around each point that have any
    label.

    The masks are not built: the four labels around each point are read, which saves memory. `owner`: the image of each
    row of points; `ids`: its label.
    """
    h, w = labels.shape[-2:]
    position = in_pixels(points, (h, w)) - 0.5
    corner, frac = position.floor().long(), position - position.floor()
    inside, unknown, pixels = (torch.zeros_like(frac[..., 0]) for _ in range(3))
    for right in (0, 1):
        for below in (0, 1):
            x, y = corner[..., 0] + right, corner[..., 1] + below
            label = labels[owner[:, None], y.clamp(0, h - 1), x.clamp(0, w - 1)]
            share = (frac[..., 0] if right else 1 - frac[..., 0]) * (frac[..., 1] if below else 1 - frac[..., 1])
            share = share * ((x >= 0) & (x < w) & (y >= 0) & (y < h))
            inside = inside + share * (label == ids[:, None])
            unknown = unknown + share * (label == VOID)
            pixels = pixels + share
    return inside, 1 - unknown / pixels
