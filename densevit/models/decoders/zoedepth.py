"""ZoeDepth (Bhat et al. 2023): metric bins on the DPT decoder of a relative depth model.

b images, h x w pixels, c channels.
"""

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.metric_bins import (
    Attractors,
    Centres,
    ConditionalLogBinomial,
    ExpertMlp,
    SeedBinRegressor,
)
from densevit.models.decoders.readout import ReadoutKind
from densevit.models.layers import upsample
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]
Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@DECODERS.register("zoedepth")
class ZoeDepth(Decoder):
    """DPT with metric bins. Its map is depth in metres at the size of the image, for the head `identity_depth`."""

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        channels: Positive = 256,
        hidden: tuple[Positive, Positive, Positive, Positive] | None = None,
        readout: ReadoutKind = "ignore",
        head_hidden: Positive = 32,
        relative: bool = True,
        bins: Positive = 64,
        embedding: Positive = 128,
        attractors: tuple[Positive, Positive, Positive, Positive] = (16, 8, 4, 1),
        widths: tuple[Positive, Positive, Positive, Positive] = (256, 128, 128, 80),
        centres: Centres = "softplus",
        min_depth: Metres = 1e-3,
        max_depth: Metres = 10.0,
        experts: Positive = 1,
    ) -> None:
        """
        Args:
            channels, hidden, readout: of the DPT decoder.
            head_hidden: channels of the relative model's last map; `relative`: use its prediction, too.
            bins: per pixel; `embedding`: channels of the bin embeddings.
            attractors: per level, from the coarsest to the finest.
            widths: hidden channels of the seed bins, the bin embeddings, the attractors and the log-binomial.
            centres: range of the bin centres: positive and unbounded, or a partition of `min_depth` to `max_depth`.
            experts: sets of bins, of which a router chooses one per image.
        """
        super().__init__()
        self.range = (min_depth, max_depth) if centres == "normed" else None
        seed, embed, attract, weigh = widths
        self.dpt = DPT(features, prefix_tokens, channels=channels, hidden=hidden, readout=readout)
        self.before = nn.Conv2d(channels, channels // 2, 3, padding=1)
        self.after = nn.Conv2d(channels // 2, head_hidden, 3, padding=1)
        self.relative = nn.Conv2d(head_hidden, 1, 1) if relative else None
        self.bottom = nn.Conv2d(channels, channels, 1)
        self.router = Router(channels, experts) if experts > 1 else None
        self.seed = SeedBinRegressor(channels, seed, bins, experts, centres)
        self.embeddings = nn.ModuleList(ExpertMlp(channels, embed, embedding, 1) for _ in range(1 + len(attractors)))
        self.attract = nn.ModuleList(Attractors(embedding, attract, points, experts, centres) for points in attractors)
        self.shares = ConditionalLogBinomial(head_hidden + relative, embedding, weigh, bins, experts)
        self.output = FeatureSpec(1, 1)

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b 1 h w"]:
        levels = self.dpt.levels(features)
        bottom = self.bottom(levels[-1])
        which = self.route(bottom)
        shared = torch.zeros_like(which)
        centres, embedding = self.seed(bottom, which), self.embeddings[0](bottom, shared)
        for embed, attract, x in zip(self.embeddings[1:], self.attract, self.dpt.fuse_levels(levels), strict=True):
            size = (x.shape[-2], x.shape[-1])
            coarser, embedding = embedding, embed(x, shared)
            centres = attract(embedding + resize(coarser, size), resize(centres, size), which)
        size = features.image_size
        shares = self.shares(self.relative_features(x, size), resize(embedding, size), which)
        return (shares * resize(self.to_metres(centres), size)).sum(1, keepdim=True)

    def route(self, bottom: Float[Tensor, "b c h w"]) -> Int64[Tensor, "b"]:
        if self.router is None:
            return torch.zeros(bottom.shape[0], dtype=torch.long, device=bottom.device)
        return self.router(bottom)

    def relative_features(self, x: Float[Tensor, "b c _ _"], size: tuple[int, int]) -> Float[Tensor, "b _ h w"]:
        """Return the relative model's last map, and its prediction."""
        x = F.relu(self.after(resize(self.before(x), size)))
        return x if self.relative is None else torch.cat([x, F.relu(self.relative(x))], 1)

    def to_metres(self, centres: Float[Tensor, "b k h w"]) -> Float[Tensor, "b k h w"]:
        """Return the bin centres in metres, sorted and clamped to the range if there is one."""
        if self.range is None:
            return centres
        low, high = self.range
        return (low + (high - low) * centres).sort(1).values.clamp(low, high)


def resize(x: Float[Tensor, "b c _ _"], size: tuple[int, int]) -> Float[Tensor, "b c h w"]:
    return upsample(x, size, align_corners=True)


class Router(nn.Module):
    """Chooses the expert of each image. Frozen: an argmax has no gradient, and its labels are domains, not depth.

    The original takes one vote for the whole batch, so that a prediction depends on the other images.
    """

    def __init__(self, channels: int, experts: int, *, dim: int = 128, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, dim, 1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 1024, batch_first=True) for _ in range(depth)
        )
        self.classify = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, experts))
        self.requires_grad_(False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Int64[Tensor, "b"]:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)  # its class token is zero
        tokens = tokens + sinusoidal_positions(tokens.shape[1], tokens.shape[2], tokens)
        for block in self.blocks:
            tokens = block(tokens)
        return self.classify(tokens[:, 0]).argmax(1)


def sinusoidal_positions(count: int, dim: int, like: Tensor) -> Float[Tensor, "count dim"]:
    """Return the sinusoidal position embedding, sines first, then cosines (Vaswani et al. 2017)."""
    positions = torch.arange(count, dtype=torch.float32, device=like.device)[:, None]
    steps = torch.arange(0, dim, 2, dtype=torch.float32, device=like.device)
    angles = positions * (steps * (-math.log(10000.0) / dim)).exp()
    return torch.cat([angles.sin(), angles.cos()], 1).to(like.dtype)
