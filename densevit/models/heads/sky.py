"""Depth with a sky beside it: Depth Anything 3's monocular head. b images, h x w pixels."""

from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from densevit.model_card import HeadSpec, Kind
from densevit.models.decoders.base import DecoderOutput
from densevit.models.heads.base import HEADS, Head, Width
from densevit.models.heads.depth import Metres
from densevit.models.heads.depth_activations import clamp_ste
from densevit.models.layers.conv_head import Projection, upsample

FEW = 10  # pixels; a sky, or a ground, of no more is taken for a mistake
FAR = 0.99  # the quantile of the ground's depth that the sky is given


@HEADS.register("sky_depth")
class SkyDepthHead(Head):
    """Positive depth; where a second branch sees sky, that of the farthest ground. In training the sky is an extra.

    With `focal` depth is metric: metres for a camera of this focal length, in pixels at network size, and for another
    in the ratio of the two. Without, it is depth up to scale and shift.
    """

    def __init__(
        self,
        channels: int,
        *,
        focal: Metres | None = None,
        threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.3,
        hidden: Width = 32,
        align_corners: bool = True,
    ) -> None:
        """
        Args:
            focal: pixels; 300 for Depth Anything 3.
            threshold: sky is what the second branch gives so much or more.
            hidden: width of the last 3x3 convolution of both branches.
            align_corners: of the upsampling; true as published.
        """
        super().__init__()
        self.threshold, self.align_corners = threshold, align_corners
        self.projection = Projection(channels, 1, hidden=hidden, align_corners=align_corners)
        self.projection.start_at(0.0)
        # The branches part behind the upsampling; what is before belongs to both.
        sky = Projection(channels, 1, hidden=hidden, align_corners=align_corners)
        sky.start_at(1.0)  # away from 0, where a ReLU learns nothing
        self.sky = sky.after
        kind: Kind = "affine" if focal is None else "metric"
        self.output = HeadSpec(kind=kind, unit="" if focal is None else "m", focal=focal)

    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b 1 height width"] | DecoderOutput:
        x = upsample(self.projection.before(x), size, self.align_corners)
        depth = clamp_ste(self.projection.after(x).float(), -20.0, 20.0).exp()
        sky = self.sky(x).float().relu()
        if self.training:
            return DecoderOutput(depth, {"sky": sky})
        return farthest(depth, sky < self.threshold)


def farthest(depth: Float[Tensor, "b 1 h w"], ground: Bool[Tensor, "b 1 h w"]) -> Float[Tensor, "b 1 h w"]:
    """Images whose sky is as far as their ground, but for the outermost percent; nothing here depends on how many."""
    # Of each image the ground's values come first, in order; torch.quantile takes 16 M numbers at most.
    values = depth.where(ground, torch.inf).flatten(1).sort(1).values
    last = ground.flatten(1).sum(1, keepdim=True) - 1
    place = FAR * last.clamp(min=0).double()
    below = place.long()
    ends = values.gather(1, below), values.gather(1, torch.minimum(below + 1, last.clamp(min=0)))
    far = torch.lerp(*ends, (place - below).float())[..., None, None]
    few = torch.minimum(last + 1, values.shape[1] - 1 - last)[..., None, None] <= FEW
    return depth.where(ground | few, far)
