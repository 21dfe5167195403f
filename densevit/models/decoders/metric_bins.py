"""Depth bins of every pixel, moved by attractors and weighed by a binomial law (Bhat et al. 2023, ZoeDepth).

b images, h x w cells, c channels, k bins, n attractors. Centres are metres, or shares of a range where `normed`.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

Centres = Literal["softplus", "normed"]
# Of the attractors. The published configs say 1000, but the code that trained and runs the models never hands it on.
STRENGTH = 300.0
EPS = 1e-3  # keeps bins of the normed form from vanishing
SHARE_EPS = 1e-4
COOLEST, HOTTEST = 0.0212, 50.0  # temperatures of the binomial law


class Pixelwise(nn.Module):
    """A 1x1 convolution with a set of weights per expert; `which` says whose each image is to pass."""

    def __init__(self, before: int, after: int, experts: int) -> None:
        super().__init__()
        bound = before**-0.5  # as torch begins a convolution
        self.weight = nn.Parameter(torch.empty(experts, after, before).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(experts, after).uniform_(-bound, bound))

    def forward(self, x: Float[Tensor, "b c h w"], which: Int64[Tensor, "b"]) -> Float[Tensor, "b d h w"]:
        y = torch.baddbmm(self.bias[which][:, :, None], self.weight[which], x.flatten(2))
        return y.reshape(x.shape[0], -1, *x.shape[-2:])


class Mlp(nn.Module):
    """Two pixelwise layers around a ReLU."""

    def __init__(self, before: int, hidden: int, after: int, experts: int) -> None:
        super().__init__()
        self.first, self.second = Pixelwise(before, hidden, experts), Pixelwise(hidden, after, experts)

    def forward(self, x: Float[Tensor, "b c h w"], which: Int64[Tensor, "b"]) -> Float[Tensor, "b d h w"]:
        return self.second(F.relu(self.first(x, which)), which)


class Seed(nn.Module):
    """The first centres: free and positive, or dividing the range among themselves."""

    def __init__(self, channels: int, hidden: int, bins: int, experts: int, form: Centres) -> None:
        super().__init__()
        self.normed = form == "normed"
        self.mlp = Mlp(channels, hidden, bins, experts)

    def forward(self, x: Float[Tensor, "b c h w"], which: Int64[Tensor, "b"]) -> Float[Tensor, "b k h w"]:
        x = self.mlp(x, which).float()
        if not self.normed:
            return F.softplus(x)
        widths = F.relu(x) + EPS
        widths = widths / widths.sum(1, keepdim=True)
        return widths.cumsum(1) - widths / 2


class Attract(nn.Module):
    """Points that pull the centres towards them, near ones more than far ones."""

    def __init__(self, channels: int, hidden: int, points: int, experts: int, form: Centres) -> None:
        super().__init__()
        self.normed = form == "normed"
        # The normed form makes two numbers a point and has only ever used the first.
        self.mlp = Mlp(channels, hidden, points * (1 + self.normed), experts)

    def forward(
        self, x: Float[Tensor, "b c h w"], centres: Float[Tensor, "b k h w"], which: Int64[Tensor, "b"]
    ) -> Float[Tensor, "b k h w"]:
        x = self.mlp(x, which).float()
        points = F.relu(x[:, ::2]) + EPS if self.normed else F.softplus(x)
        moves = torch.zeros_like(centres)
        for point in points.unbind(1):  # one by one: all at once would be n times the memory
            gap = point[:, None] - centres
            moves = moves + gap / (1 + STRENGTH * gap**2)
        return centres + moves / points.shape[1]


class Shares(nn.Module):
    """How likely each bin is: a binomial law with a chance and a temperature for every pixel."""

    log_choices: Tensor
    counts: Tensor

    def __init__(self, fine: int, embedding: int, hidden: int, bins: int, experts: int) -> None:
        """
        Args:
            fine: channels at full size; `embedding`: those that are interpolated to it.
        """
        super().__init__()
        self.fine = fine
        self.first = Pixelwise(fine + embedding, hidden, experts)
        self.second = Pixelwise(hidden, 4, experts)
        self.register_buffer("counts", torch.arange(bins).float()[:, None, None], persistent=False)
        self.register_buffer("log_choices", log_choices(bins - 1, self.counts), persistent=False)

    def forward(
        self, fine: Float[Tensor, "b c h w"], embedding: Float[Tensor, "b e h w"], which: Int64[Tensor, "b"]
    ) -> Float[Tensor, "b k h w"]:
        x = F.gelu(self.first(torch.cat([fine, embedding], 1), which))
        chances, heats = (F.softplus(self.second(x, which).float()) + SHARE_EPS).chunk(2, 1)
        chance = chances[:, :1] / chances.sum(1, keepdim=True)
        heat = COOLEST + (HOTTEST - COOLEST) * heats[:, :1] / heats.sum(1, keepdim=True)
        hits, misses = chance.clamp(SHARE_EPS, 1.0).log(), (1 - chance).clamp(SHARE_EPS, 1.0).log()
        scores = self.log_choices + self.counts * hits + (len(self.counts) - 1 - self.counts) * misses
        return (scores / heat).softmax(1)


def log_choices(n: int, k: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log of n over k by Stirling's leading terms, with the original's guards against log 0."""
    k, rest = k + 1e-7, n - k
    return n * torch.tensor(float(n)).log() - k * k.log() - rest * (rest + 1e-7).log()
