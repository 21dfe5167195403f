"""Depth and sky: Depth Anything 3's monocular head. b images, h x w pixels."""

from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from densevit.model_card import HeadSpec, Kind
from densevit.models.decoders.base import DecoderOutput
from densevit.models.heads.base import HEADS, Width
from densevit.models.heads.depth import DepthHead, Metres, Uncertainty, clamp_ste
from densevit.models.layers import ConvHead, upsample

MIN_PIXELS = 10  # of sky and of ground; with no more, the sky is not filled
SKY_PERCENT = 99  # the quantile of the ground's depth that the sky is given


@HEADS.register("sky_depth")
class SkyDepthHead(DepthHead):
    """Positive depth; pixels that a second branch takes for sky get the depth of the farthest ground.

    With `focal` depth is metric: metres for a camera of this focal length, in pixels at network size; it scales with
    the focal length. Without, it is depth up to scale and shift. In training the sky is an extra.
    """

    def __init__(
        self,
        channels: int,
        *,
        focal: Metres | None = None,
        threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.3,
        hidden: Width = 32,
        align_corners: bool = True,
        uncertainty: Uncertainty = None,
    ) -> None:
        """
        Args:
            focal: pixels; 300 for Depth Anything 3.
            threshold: value of the second branch from which a pixel is sky.
            hidden: channels of the last 3x3 convolution of both branches.
            align_corners: upsample with aligned corners; true as published.
        """
        super().__init__(channels, uncertainty)
        self.threshold, self.align_corners = threshold, align_corners
        self.projection = ConvHead(channels, 1, hidden=hidden, align_corners=align_corners)
        self.projection.init_output(0.0)
        # Both branches share everything up to the upsampling.
        sky = ConvHead(channels, 1, hidden=hidden, align_corners=align_corners)
        sky.init_output(1.0)  # away from 0, where a ReLU learns nothing
        self.sky = sky.after
        kind: Kind = "affine" if focal is None else "metric"
        self.output = HeadSpec(kind=kind, unit="" if focal is None else "m", focal=focal)

    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b 1 height width"] | DecoderOutput:
        if not self.training:
            return super().forward(x, size)
        depth, sky = self.depth_and_sky(x, size)
        extras = {} if self.uncertainty is None else {"uncertainty": self.uncertainty(x, size)}
        return DecoderOutput(depth, {"sky": sky, **extras})

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        depth, sky = self.depth_and_sky(x, size)
        return fill_sky(depth, sky < self.threshold)

    def depth_and_sky(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        wide = upsample(self.projection.before(x), size, self.align_corners)
        depth = clamp_ste(self.projection.after(wide).float(), -20.0, 20.0).exp()
        return depth, self.sky(wide).float().relu()


def fill_sky(depth: Float[Tensor, "b 1 h w"], ground: Bool[Tensor, "b 1 h w"]) -> Float[Tensor, "b 1 h w"]:
    """Give the sky the 99 % quantile of the depth of the ground, image by image."""
    # Sorted with the ground first; torch.quantile takes at most 16 M numbers.
    values = depth.where(ground, torch.inf).flatten(1).sort(1).values
    last = ground.flatten(1).sum(1, keepdim=True) - 1
    rank = SKY_PERCENT * last.clamp(min=0)  # in whole numbers: fp32 holds none over 16 M, and Apple's GPUs no fp64
    below = rank // 100
    ends = values.gather(1, below), values.gather(1, torch.minimum(below + 1, last.clamp(min=0)))
    far = torch.lerp(*ends, (rank % 100).float() / 100)[..., None, None]
    few = torch.minimum(last + 1, values.shape[1] - 1 - last)[..., None, None] <= MIN_PIXELS
    return depth.where(ground | few, far)
