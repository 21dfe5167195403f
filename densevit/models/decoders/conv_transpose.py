"""Progressive upsampling: doubles the map step by step, by transposed convolution or interpolation and convolution."""

import math
from itertools import pairwise
from typing import Annotated, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.layers import Fuse, Norm, build_norm, conv_block, fuse_maps, fused_spec
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]


@DECODERS.register("conv_transpose")
class ConvTranspose(Decoder):
    """Token map of D channels to D/2 at twice the size, D/4 at four times, ..., until `stride` is reached.

    With a patch size that is no power of two the stride is smaller than asked (14 at stride 4 gives 3.5).

    With `{upsample: bilinear, channels: 256, norm: batch, stride: 1}` on one feature map it is SETR-PUP,
    progressive upsampling (Zheng et al. 2021): four times 3x3 convolution, norm, ReLU and doubling.
    """

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        stride: Positive = 4,
        channels: Positive | None = None,
        min_channels: Positive = 32,
        upsample: Literal["deconv", "bilinear"] = "deconv",
        kernel: Literal[2, 4] = 2,
        norm: Norm = "layer",
        fuse: Fuse = "concat",
    ) -> None:
        """
        Args:
            stride: stride of the output in image pixels; 1 is full size.
            channels: channels of every step; by default halved from step to step.
            min_channels: lower bound of the halved channels.
            upsample: upsampling by a transposed convolution and GELU, or by a 3x3 convolution, ReLU and interpolation.
            kernel: size of the transposed convolution; 2 without overlap, 4 with overlap at four times the cost.
            fuse: how several feature levels become one map.
        """
        super().__init__()
        fused = fused_spec(features, fuse)
        steps = max(0, math.ceil(math.log2(fused.stride / stride)))
        width = features[-1].channels
        halved = [max(width // 2**i, min(width, min_channels)) for i in range(1, steps + 1)]
        widths = [fused.channels, *([channels] * steps if channels else halved)]
        self.fuse: Fuse = fuse
        self.steps = nn.Sequential(
            *(
                deconv_block(a, b, kernel, norm) if upsample == "deconv" else upsample_conv_block(a, b, norm)
                for a, b in pairwise(widths)
            )
        )
        self.output = FeatureSpec(widths[-1], max(1, round(fused.stride / 2**steps)))

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"]:
        return self.steps(fuse_maps(features, self.fuse))


def deconv_block(before: int, after: int, kernel: Literal[2, 4], norm: Norm) -> nn.Sequential:
    grow = nn.ConvTranspose2d(before, after, kernel, stride=2, padding=(kernel - 2) // 2)
    return nn.Sequential(grow, build_norm(norm, after), nn.GELU())


def upsample_conv_block(before: int, after: int, norm: Norm) -> nn.Sequential:
    grow = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
    return conv_block(before, after, 3, norm).append(grow)
