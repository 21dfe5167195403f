"""The convolutional head of DPT: from a decoder's map to k numbers per pixel at image size."""

from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

UpsampleMode = Literal["bilinear", "bicubic"]


class ConvHead(nn.Module):
    """3x3 convolution, upsampling, 3x3 convolution, ReLU, 1x1. With `hidden` 0 a single 1x1, then upsampling.

    A 1x1 convolution commutes with bilinear upsampling, so it comes first.
    """

    def __init__(
        self,
        channels: int,
        out: int,
        *,
        hidden: int,
        align_corners: bool,
        scale: float | None = None,
        mid_channels: int | None = None,
    ) -> None:
        """
        Args:
            hidden: channels of the second 3x3 convolution.
            mid_channels: of the first; by default half of `channels`, at least `hidden`.
            scale: upsampling factor between the convolutions; None upsamples to `size`.
        """
        super().__init__()
        # Not a float where it is whole: a graph for images of any size has no Python rounding.
        self.scale = int(scale) if scale is not None and scale == int(scale) else scale
        self.align_corners = align_corners
        last = nn.Conv2d(hidden or channels, out, 1)
        if hidden:
            mid = mid_channels or max(channels // 2, hidden)
            self.before: nn.Module = nn.Conv2d(channels, mid, 3, padding=1)
            self.after: nn.Module = nn.Sequential(nn.Conv2d(mid, hidden, 3, padding=1), nn.ReLU(inplace=True), last)
        else:
            self.before, self.after = last, nn.Identity()

    @property
    def last(self) -> nn.Conv2d:
        """The last 1x1 convolution."""
        last = self.after[-1] if isinstance(self.after, nn.Sequential) else self.before
        assert isinstance(last, nn.Conv2d)
        return last

    def init_output(self, value: float) -> None:
        """Initialises the last layer so that the output is about `value` everywhere."""
        last = self.last
        nn.init.normal_(last.weight, std=0.1 / last.in_channels**0.5)
        assert last.bias is not None
        nn.init.constant_(last.bias, value)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b k height width"]:
        if self.scale is not None:
            (h, w), scale = x.shape[-2:], self.scale
            size = (scale * h, scale * w) if isinstance(scale, int) else (round(scale * h), round(scale * w))
        return self.after(upsample(self.before(x), size, self.align_corners))


def upsample(
    x: Float[Tensor, "b c h w"], size: tuple[int, int], align_corners: bool = False, how: UpsampleMode = "bilinear"
) -> Float[Tensor, "b c height width"]:
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    return F.interpolate(x, size=size, mode=how, align_corners=align_corners)
