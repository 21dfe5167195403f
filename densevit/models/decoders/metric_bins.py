"""ZoeDepth's metric bins: bin centres per pixel, attractors and a log-binomial distribution (Bhat et al. 2023).

b images, h x w cells, c channels, k bins, n attractors. Centres are metres, or fractions of a range if `normed`.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

Centres = Literal["softplus", "normed"]
# The published configs say 1000, but the code that trained and runs the models never uses that value.
ATTRACTOR_ALPHA = 300.0
EPS = 1e-3  # lower bound of the widths of normed bins
PROBABILITY_EPS = 1e-4
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.0212, 50.0  # of the log-binomial distribution


class ExpertConv1x1(nn.Module):
    """1x1 convolution with one set of weights per expert; `which` is the expert of each image."""

    def __init__(self, before: int, after: int, experts: int) -> None:
        super().__init__()
        bound = before**-0.5  # torch's initialisation of convolutions
        self.weight = nn.Parameter(torch.empty(experts, after, before).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(experts, after).uniform_(-bound, bound))

    def forward(self, x: Float[Tensor, "b c h w"], which: Int64[Tensor, "b"]) -> Float[Tensor, "b d h w"]:
        y = torch.baddbmm(self.bias[which][:, :, None], self.weight[which], x.flatten(2))
        return y.reshape(x.shape[0], -1, *x.shape[-2:])


class ExpertMlp(nn.Module):
    """1x1 convolution, ReLU, 1x1 convolution."""

    def __init__(self, before: int, hidden: int, after: int, experts: int) -> None:
        super().__init__()
        self.first, self.second = ExpertConv1x1(before, hidden, experts), ExpertConv1x1(hidden, after, experts)

    def forward(self, x: Float[Tensor, "b c h w"], which: Int64[Tensor, "b"]) -> Float[Tensor, "b d h w"]:
        return self.second(F.relu(self.first(x, which)), which)


class SeedBinRegressor(nn.Module):
    """Initial bin centres: positive, or as a partition of the range if `normed`."""

    def __init__(self, channels: int, hidden: int, bins: int, experts: int, form: Centres) -> None:
        super().__init__()
        self.normed = form == "normed"
        self.mlp = ExpertMlp(channels, hidden, bins, experts)

    def forward(self, x: Float[Tensor, "b c h w"], which: Int64[Tensor, "b"]) -> Float[Tensor, "b k h w"]:
        x = self.mlp(x, which).float()
        if not self.normed:
            return F.softplus(x)
        widths = F.relu(x) + EPS
        widths = widths / widths.sum(1, keepdim=True)
        return widths.cumsum(1) - widths / 2


class Attractors(nn.Module):
    """Attractor layer: moves bin centres towards predicted points, near centres more than far ones."""

    def __init__(self, channels: int, hidden: int, points: int, experts: int, form: Centres) -> None:
        super().__init__()
        self.normed = form == "normed"
        # The normed form predicts two numbers per point, and the original uses only the first.
        self.mlp = ExpertMlp(channels, hidden, points * (1 + self.normed), experts)

    def forward(
        self, x: Float[Tensor, "b c h w"], centres: Float[Tensor, "b k h w"], which: Int64[Tensor, "b"]
    ) -> Float[Tensor, "b k h w"]:
        x = self.mlp(x, which).float()
        points = F.relu(x[:, ::2]) + EPS if self.normed else F.softplus(x)
        shift = torch.zeros_like(centres)
        for point in points.unbind(1):  # one by one, to save memory
            gap = point[:, None] - centres
            shift = shift + gap / (1 + ATTRACTOR_ALPHA * gap**2)
        return centres + shift / points.shape[1]


class ConditionalLogBinomial(nn.Module):
    """Bin probabilities: a binomial distribution with a probability and a temperature for every pixel."""

    log_choices: Tensor
    counts: Tensor

    def __init__(self, fine: int, embedding: int, hidden: int, bins: int, experts: int) -> None:
        """
        Args:
            fine: channels at full size; `embedding`: those that are interpolated to it.
        """
        super().__init__()
        self.fine = fine
        self.first = ExpertConv1x1(fine + embedding, hidden, experts)
        self.second = ExpertConv1x1(hidden, 4, experts)
        self.register_buffer("counts", torch.arange(bins).float()[:, None, None], persistent=False)
        self.register_buffer("log_choices", log_binomial_coefficient(bins - 1, self.counts), persistent=False)

    def forward(
        self, fine: Float[Tensor, "b c h w"], embedding: Float[Tensor, "b e h w"], which: Int64[Tensor, "b"]
    ) -> Float[Tensor, "b k h w"]:
        x = F.gelu(self.first(torch.cat([fine, embedding], 1), which))
        p, t = (F.softplus(self.second(x, which).float()) + PROBABILITY_EPS).chunk(2, 1)
        p = p[:, :1] / p.sum(1, keepdim=True)
        temperature = MIN_TEMPERATURE + (MAX_TEMPERATURE - MIN_TEMPERATURE) * t[:, :1] / t.sum(1, keepdim=True)
        log_p, log_not_p = p.clamp(PROBABILITY_EPS, 1.0).log(), (1 - p).clamp(PROBABILITY_EPS, 1.0).log()
        scores = self.log_choices + self.counts * log_p + (len(self.counts) - 1 - self.counts) * log_not_p
        return (scores / temperature).softmax(1)


def log_binomial_coefficient(n: int, k: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return log of n over k by Stirling's leading terms, with the original's eps against log 0."""
    k, rest = k + 1e-7, n - k
    return n * torch.tensor(float(n)).log() - k * k.log() - rest * (rest + 1e-7).log()
