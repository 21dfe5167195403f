"""A sparse depth map as an input of the network (Prompt Depth Anything, Lin et al. 2025; Prior Depth Anything, Wang et
al. 2025).

b images, c channels, h x w pixels of the network's input, gh x gw cells of a map.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

CHANNELS = 6  # that describe the points at each cell, see `describe`
DENSITIES = (1, 4, 16)  # pixels around, over which the share of measured ones is averaged
PRIOR = 0.1  # of a cell's mean: how many points the value of the coarser level counts


@dataclass(frozen=True)
class PointMaps:
    """What the blocks see of the measured points.

    Attributes:
        maps: at the size of the padded image.
        any: which images have points; the others are predicted as without.
    """

    maps: Float[Tensor, "b k h w"]
    any: Bool[Tensor, "b"]


class PromptBlocks(nn.ModuleList):
    """A prompt block for each fusion of a decoder.

    The model predicts without points first. What it was off by at the points is spread over the image, and the blocks
    see that beside the decoder's own maps: learned completion of a correction, which follows the edges of the image.
    """

    def __init__(self, channels: Sequence[int], hidden: int, head: str) -> None:
        """
        Args:
            channels: of the maps.
            hidden: of the convolutions within.
            head: whose prediction the points are compared with.
        """
        super().__init__(PromptBlock(width, hidden) for width in channels)
        self.head = head

    def apply_to(self, level: int, x: Float[Tensor, "b c gh gw"], points: PointMaps) -> Float[Tensor, "b c gh gw"]:
        """A map of the decoder with what the points add to it; images without points keep theirs to the bit."""
        maps = F.interpolate(points.maps, size=(x.shape[-2], x.shape[-1]), mode="area").to(x.dtype)
        return torch.where(points.any[:, None, None, None], x + self[level](x, maps), x)


class PromptBlock(nn.Module):
    """Three 3x3 convolutions of a decoder's map and the points; the last begins at zero."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels + CHANNELS, hidden, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1)
        self.out = nn.Conv2d(hidden, channels, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "b c gh gw"], points: Float[Tensor, "b k gh gw"]) -> Float[Tensor, "b c gh gw"]:
        hidden = F.relu(self.conv1(torch.cat([x, points], 1)))
        y: Tensor = self.out(F.relu(self.conv2(hidden)))
        return y


def describe(points: Float[Tensor, "b 1 h w"], depth: Float[Tensor, "b 1 h w"]) -> PointMaps:
    """
    Args:
        points: measured depth, 0 where none, in the unit of `depth`.
        depth: predicted without points.

    Returns:
        six channels: the error of the prediction in log depth, spread from the points; measured log depth, spread
        likewise, minus the predicted one; predicted log depth; and how dense the points are around, on three scales.
    """
    points, depth = points.float(), depth.float()
    known = points > 0
    predicted = depth.clamp_min(1e-6).log()
    measured = points.clamp_min(1e-6).log()
    values = torch.cat([measured - predicted, measured], 1)
    spread = spread_points(values, known)
    counts = known.float()
    size = (points.shape[-2], points.shape[-1])
    densities = [F.interpolate(density(counts, reach), size=size, mode="bilinear") for reach in DENSITIES]
    maps = torch.cat([spread[:, :1], spread[:, 1:] - predicted, predicted, *(one.sqrt() for one in densities)], 1)
    return PointMaps(maps, known.flatten(1).any(1))


def density(known: Float[Tensor, "b 1 h w"], reach: int) -> Float[Tensor, "b 1 _ _"]:
    return F.avg_pool2d(known, min(reach, *known.shape[-2:]), ceil_mode=True, count_include_pad=False)


def spread_points(values: Float[Tensor, "b k h w"], known: Bool[Tensor, "b 1 h w"]) -> Float[Tensor, "b k h w"]:
    """Values everywhere from those at single pixels: means over cells of growing size, each cell's mean drawn to that
    of the cells around it where it has few points (push-pull, Gortler et al. 1996). 0 where an image has no points."""
    sums, counts = values * known, known.float()
    levels = [(sums, counts)]
    while max(sums.shape[-2:]) > 1:
        sums, counts = (4 * F.avg_pool2d(pad_even(x), 2) for x in (sums, counts))
        levels.append((sums, counts))
    sums, counts = levels.pop()
    found = sums / counts.clamp_min(1)
    for sums, counts in reversed(levels):
        coarse = F.interpolate(found, size=(sums.shape[-2], sums.shape[-1]), mode="bilinear")
        found = (sums + PRIOR * coarse) / (counts + PRIOR)
    return found


def pad_even(x: Float[Tensor, "b k h w"]) -> Float[Tensor, "b k _ _"]:
    return F.pad(x, (0, x.shape[-1] % 2, 0, x.shape[-2] % 2))
