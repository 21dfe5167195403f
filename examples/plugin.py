"""Components of your own: a decoder, a data set and a loss. `examples/plugin.yaml` trains with them.

    densevit train examples/plugin.yaml
    densevit list components decoder weighted_sum --plugins examples/plugin.py

What the program knows comes by position; the keyword-only parameters are the config's options, checked by their types.
"""

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import interpolate

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.losses.depth import DEPTH_LOSSES, DepthLoss
from densevit.models.decoders.base import DECODERS, Decoder
from densevit.structures import EncoderOutput, FeatureSpec, Sample


@DECODERS.register("weighted_sum")
class WeightedSum(Decoder):
    """A learned weighted sum of all feature maps, each through its own 1x1 convolution."""

    def __init__(
        self, features: list[FeatureSpec], prefix_tokens: int, *, channels: Annotated[int, Field(gt=0)] = 64
    ) -> None:
        """
        Args:
            channels: of the sum.
        """
        super().__init__()
        self.projections = nn.ModuleList(nn.Conv2d(feature.channels, channels, 1) for feature in features)
        self.weights = nn.Parameter(torch.ones(len(features)))
        self.output = FeatureSpec(channels, stride=features[0].stride)  # what heads and DenseModel ask for

    def forward(self, features: EncoderOutput) -> Tensor:
        size = features.maps[0].shape[-2:]
        shares = self.weights.softmax(0)
        maps = [project(x) for project, x in zip(self.projections, features.maps, strict=True)]
        return sum(share * interpolate(x, size, mode="bilinear") for share, x in zip(shares, maps, strict=True))


@DATASETS.register("ramps")
class Ramps(Dataset):
    """Synthetic floors that rise towards the horizon; brightness tells their depth."""

    depth_range = (0.5, 10.0)

    def __init__(
        self,
        *,
        count: Annotated[int, Field(ge=1)] = 16,
        size: tuple[int, int] = (64, 80),
        seed: int = 0,
    ) -> None:
        """
        Args:
            count: images.
            size: height and width in pixels.
            seed: another seed gives other images.
        """
        self.size, self.seed = size, seed
        self.names = [f"ramp-{seed}-{i:04d}" for i in range(count)]

    def read(self, index: int) -> Sample:
        random = np.random.default_rng((self.seed, index))  # an image depends on its index only, not on the order
        near, far = random.uniform(1, 2), random.uniform(4, 8)
        rows = np.linspace(far, near, self.size[0], dtype=np.float32)
        depth = np.tile(rows[:, None], (1, self.size[1]))
        grey = 255 * (1 - depth / 10) + random.normal(0, 4, depth.shape)
        image = np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=-1)
        return Sample(name=self.names[index], image=image, depth=depth, valid=np.ones_like(depth, bool))


@DEPTH_LOSSES.register("charbonnier")
class Charbonnier(DepthLoss):
    """A smooth L1, sqrt(r^2 + eps^2), in metres (Charbonnier et al. 1994)."""

    def __init__(self, *, eps: Annotated[float, Field(gt=0)] = 0.01) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, pred: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        error = torch.where(valid, pred - target, 0.0)  # NaN may stand where depth is not valid
        return (error.square() + self.eps**2).sqrt().mul(valid).sum() / valid.sum().clamp_min(1)
