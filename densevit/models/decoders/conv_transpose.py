"""The progressive head: transposed convolutions double the map and halve its width, step by step."""

import math
from itertools import pairwise
from typing import Annotated, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.models.decoder import DECODERS, Decoder
from densevit.models.decoders.fuse import Fuse, fuse_maps, fused_spec
from densevit.models.norms import Norm, build_norm
from densevit.structures import Features, FeatureSpec

Positive = Annotated[int, Field(gt=0)]


@DECODERS.register("conv_transpose")
class ConvTranspose(Decoder):
    """Token map of D channels to D/2 at twice the size, D/4 at four times, ..., until `stride` is reached.

    A patch that is no power of two is overshot (14 at stride 4 gives 3.5); the head resizes to the image.
    """

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        stride: Positive = 4,
        min_channels: Positive = 32,
        kernel: Literal[2, 4] = 2,
        norm: Norm = "layer",
        fuse: Fuse = "concat",
    ) -> None:
        """
        Args:
            stride: image pixels per output pixel to reach; 1 is full size.
            min_channels: the width is not halved below this.
            kernel: 2 lets every token paint its own four cells; 4 overlaps neighbours, at four times the work.
            fuse: how several taps become one map.
        """
        super().__init__()
        fused = fused_spec(features, fuse)
        steps = max(0, math.ceil(math.log2(fused.stride / stride)))
        width = features[-1].channels
        widths = [fused.channels, *(max(width // 2**i, min(width, min_channels)) for i in range(1, steps + 1))]
        self.fuse: Fuse = fuse
        self.steps = nn.Sequential(*(step(a, b, kernel, norm) for a, b in pairwise(widths)))
        self.output = FeatureSpec(widths[-1], max(1, round(fused.stride / 2**steps)))

    def forward(self, features: Features) -> Float[Tensor, "b channels h w"]:
        return self.steps(fuse_maps(features, self.fuse))


def step(before: int, after: int, kernel: Literal[2, 4], norm: Norm) -> nn.Sequential:
    grow = nn.ConvTranspose2d(before, after, kernel, stride=2, padding=(kernel - 2) // 2)
    return nn.Sequential(grow, build_norm(norm, after), nn.GELU())
