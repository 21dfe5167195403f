"""Depth as an expectation over fixed bins: DINOv2's and DINOv3's heads. b images, k bins, h x w pixels."""

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.heads.base import HEADS, Width
from densevit.models.heads.depth import Count, DepthHead, Metres, Uncertainty, checked_range, clamp_ste
from densevit.models.layers import ConvHead, upsample

Spacing = Literal["linear", "log", "mixed"]


def linear_bins(low: float, high: float, bins: int) -> Float[Tensor, "{bins}"]:
    return torch.linspace(low, high, bins)


def log_bins(low: float, high: float, bins: int) -> Float[Tensor, "{bins}"]:
    return torch.linspace(math.log(low), math.log(high), bins).exp()


def mixed_bins(low: float, high: float, bins: int) -> Float[Tensor, "{bins}"]:
    """Log spacing at the near end blended into linear spacing at the far end: DINOv3's canopy heights (CHMv2)."""
    return torch.lerp(log_bins(low, high, bins), linear_bins(low, high, bins), torch.linspace(0, 1, bins))


SPACINGS: dict[Spacing, Callable[[float, float, int], Tensor]] = {
    "linear": linear_bins,
    "log": log_bins,
    "mixed": mixed_bins,
}


class LinearProbe(nn.Sequential):
    """Layers at the size of the map, then upsampling by `scale`, independent of the image size."""

    def __init__(self, *layers: nn.Module, scale: int) -> None:
        super().__init__(*layers)
        self.scale = scale

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b k _ _"]:
        for layer in self:
            x = layer(x)
        return upsample(x, (self.scale * x.shape[-2], self.scale * x.shape[-1]))


@HEADS.register("bins")
class BinsHead(DepthHead):
    """Depth as the expectation over fixed bins, as in DINOv2 (adaptive bins: AdaBins)."""

    centres: Tensor

    def __init__(
        self,
        channels: int,
        *,
        bins: Count = 256,
        spacing: Spacing = "linear",
        weights: Literal["relu", "softmax"] = "relu",
        floor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1,
        min_depth: Metres = 1e-3,
        max_depth: Metres = 10.0,
        form: Literal["linear", "dpt"] = "linear",
        hidden: Width = 0,
        upsample: Count = 4,
        kind: Literal["metric", "affine"] = "metric",
        uncertainty: Uncertainty = None,
    ) -> None:
        """Raise ConfigError: an empty range.

        Args:
            bins: how many.
            min_depth, max_depth: metres, of the first and the last.
            spacing: even in metres, in ratios (exp(linspace(log min, log max))), or from the latter to the former.
            weights: how logits become shares: DINOv2's ReLU + `floor` over its sum, or a softmax.
            form: logits by a 1x1 convolution, or as DPT's head with `hidden` channels behind the upsampling (DINOv3).
            hidden: `linear`: width of a 3x3 convolution before the logits; 0 for none.
            upsample: the logits grow by this before they become shares (DINOv2's linear heads: 4, DINOv3's: 2); depth
                then grows to image size.
            floor: added to every logit behind the ReLU, so that shares never vanish.
            kind: affine where the bins' metres mean nothing, because training did not fix scale and shift.
        """
        super().__init__(channels, uncertainty)
        low, high = checked_range(min_depth, max_depth)
        self.register_buffer("centres", SPACINGS[spacing](low, high, bins), persistent=False)
        self.softmax, self.floor, self.bounds = weights == "softmax", floor, (low, high)
        if form == "dpt":
            self.projection: nn.Module = ConvHead(channels, bins, hidden=hidden, align_corners=True, scale=upsample)
        else:
            before = [nn.Conv2d(channels, hidden, 3, padding=1), nn.ReLU()] if hidden else []
            self.projection = LinearProbe(*before, nn.Conv2d(hidden or channels, bins, 1), scale=upsample)
        metric = kind == "metric"
        self.output = HeadSpec(kind=kind, unit="m" if metric else "", range=self.bounds if metric else None)

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        logits = self.projection(x, size).float()
        # An expectation as products and a sum, not as a matrix product, which autocast would do in bfloat16.
        scores = logits.softmax(1) if self.softmax else logits.relu() + self.floor
        depth = (scores * self.centres[:, None, None]).sum(1, keepdim=True) / scores.sum(1, keepdim=True)
        return clamp_ste(upsample(depth, size), *self.bounds)
