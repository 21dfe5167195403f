"""Heads for depth (metric, disparity, affine-invariant, inverse, predicted by the decoder itself) and for normals."""

import math
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.models.heads.base import ACTIVATIONS, HEADS, DepthHead, Head, Uncertainty, Width, clamp_ste
from densevit.models.layers import ConvHead, UpsampleMode, upsample

Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
ScaleFactor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MIN_INVERSE_DEPTH = 1e-8  # 1/m; DPT's lower bound where `shift` is 0


def checked_range(min_depth: float, max_depth: float) -> tuple[float, float]:
    if not min_depth < max_depth:
        raise ConfigError(f"head: min_depth {min_depth} is not below max_depth {max_depth}.")
    return min_depth, max_depth


@HEADS.register("metric")
class MetricHead(DepthHead):
    """Depth in metres within a range."""

    def __init__(
        self,
        channels: int,
        *,
        max_depth: Metres | None = 10.0,
        min_depth: Annotated[float, Field(ge=0)] = 1e-3,
        activation: Literal["sigmoid", "log", "exp", "softplus", "relu"] = "sigmoid",
        initial_depth: Metres | None = None,
        hidden: Width = 32,
        mid_channels: Count | None = None,
        align_corners: bool = False,
        scale: ScaleFactor | None = None,
        interpolation: UpsampleMode = "bilinear",
        uncertainty: Uncertainty = None,
    ) -> None:
        """Raise ConfigError: an empty range, an initial depth outside it, or `min_depth` 0 with a logarithm.

        Args:
            max_depth, min_depth: metres, the range of predictions; no upper bound if `max_depth` is null, which needs
                activation `exp`, `softplus` or `relu`.
            activation: `sigmoid`, `softplus` and `relu` are linear in metres, `log` and `exp` in log depth.
            initial_depth: prediction of the untrained head; by default a quarter of `max_depth` (of 10 if null), near
                the medians of NYU (10) and KITTI (80).
            hidden: width of the last 3x3 convolution; 0 makes the head a single 1x1.
            mid_channels: channels after the first 3x3 convolution; by default half of the decoder's, at least `hidden`.
            align_corners: upsample with aligned corners; true as published for DPT and Depth Anything.
            scale: upsampling within the head, after which depth is resized to image size (DINOv2: 2); None upsamples
                to image size within the head.
            interpolation: method of that resize; bicubic in transformers' DPT, which overshoots a little.
        """
        super().__init__(channels, uncertainty)
        if max_depth is None and activation in ("sigmoid", "log"):
            raise ConfigError(f"head.max_depth: activation '{activation}' needs one; would fit: exp, softplus, relu.")
        self.low, self.high = checked_range(min_depth, math.inf if max_depth is None else max_depth)
        start = (max_depth or 10.0) / 4 if initial_depth is None else initial_depth
        if not self.low < start < self.high:
            raise ConfigError(f"head.initial_depth: {start} is not within {self.low} to {self.high}.")
        if min_depth == 0 and activation in ("log", "exp"):
            raise ConfigError(f"head.min_depth: activation '{activation}' needs it above 0.")
        self.activation, self.interpolation = activation, interpolation
        self.projection = ConvHead(
            channels, 1, hidden=hidden, align_corners=align_corners, scale=scale, mid_channels=mid_channels
        )
        self.projection.init_output(ACTIVATIONS[activation].inverse(start, self.low, self.high))
        self.output = HeadSpec(kind="metric", unit="m", range=None if max_depth is None else (min_depth, max_depth))

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        # bfloat16 has three digits: activation and resizing are computed in float32.
        logits = self.projection(x, size).float()
        depth = ACTIVATIONS[self.activation].depth(logits, self.low, self.high)
        return upsample(clamp_ste(depth, self.low, self.high), size, how=self.interpolation)


@HEADS.register("disparity")
class DisparityHead(DepthHead):
    """Inverse depth up to scale and shift, larger is nearer, never negative (MiDaS, Depth Anything)."""

    def __init__(
        self,
        channels: int,
        *,
        activation: Literal["relu", "softplus"] = "relu",
        hidden: Width = 32,
        mid_channels: Count | None = None,
        align_corners: bool = False,
        scale: ScaleFactor | None = None,
        interpolation: UpsampleMode = "bilinear",
        uncertainty: Uncertainty = None,
    ) -> None:
        """
        Args:
            hidden, mid_channels, align_corners, scale, interpolation: as in `metric`.
        """
        super().__init__(channels, uncertainty)
        self.smooth, self.interpolation = activation == "softplus", interpolation
        self.projection = ConvHead(
            channels, 1, hidden=hidden, align_corners=align_corners, scale=scale, mid_channels=mid_channels
        )
        self.projection.init_output(1.0)  # away from 0, where a ReLU learns nothing
        self.output = HeadSpec(kind="disparity", unit="")

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        y = self.projection(x, size).float()
        return upsample(F.softplus(y) if self.smooth else F.relu(y), size, how=self.interpolation)


@HEADS.register("affine")
class AffineHead(DepthHead):
    """Depth up to scale and shift; with `exp` positive, as in Depth Anything 3."""

    def __init__(
        self,
        channels: int,
        *,
        activation: Literal["identity", "exp"] = "identity",
        hidden: Width = 32,
        align_corners: bool = False,
        uncertainty: Uncertainty = None,
    ) -> None:
        super().__init__(channels, uncertainty)
        self.positive = activation == "exp"
        self.projection = ConvHead(channels, 1, hidden=hidden, align_corners=align_corners)
        self.projection.init_output(0.0)
        self.output = HeadSpec(kind="affine", unit="")

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        y = self.projection(x, size).float()
        return clamp_ste(y, -20.0, 20.0).exp() if self.positive else y


@HEADS.register("inverse_depth")
class InverseHead(DepthHead):
    """Metres as 1 / (scale * disparity + shift), as DPT turns its disparity into depth for KITTI and NYU."""

    def __init__(
        self,
        channels: int,
        *,
        scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0,
        shift: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1,
        hidden: Width = 32,
        align_corners: bool = False,
        uncertainty: Uncertainty = None,
    ) -> None:
        """
        Args:
            scale: factor of the disparity, in 1/m per unit of it.
            shift: offset of the disparity, in 1/m; the largest depth is 1 / shift.
            hidden: width of the last 3x3 convolution; 0 makes the head a single 1x1.
            align_corners: upsample with aligned corners; true as published for DPT.
        """
        super().__init__(channels, uncertainty)
        self.scale, self.shift = scale, shift
        self.projection = ConvHead(channels, 1, hidden=hidden, align_corners=align_corners)
        self.projection.init_output(max(shift, 0.1) / scale)
        furthest = 1 / max(shift, MIN_INVERSE_DEPTH)
        self.output = HeadSpec(kind="metric", unit="m", range=(0.0, furthest))

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        disparity = F.relu(self.projection(x, size).float())
        return 1 / (self.scale * disparity + self.shift).clamp(min=MIN_INVERSE_DEPTH)


@HEADS.register("identity_depth")
class IdentityDepthHead(DepthHead):
    """The decoder's map is depth in metres, as in `zoedepth`; a 1x1 convolution if it has several channels."""

    def __init__(self, channels: int, *, max_depth: Metres | None = None, uncertainty: Uncertainty = None) -> None:
        """
        Args:
            max_depth: upper bound of the decoder's depth, for the card; None if unbounded.
        """
        super().__init__(channels, uncertainty)
        self.join = nn.Identity() if channels == 1 else nn.Conv2d(channels, 1, 1)
        self.output = HeadSpec(kind="metric", unit="m", range=None if max_depth is None else (0.0, max_depth))

    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        return upsample(self.join(x), size).float()


@HEADS.register("normals")
class NormalsHead(Head):
    """Unit normals in camera axes (right, down, forward), towards the camera."""

    def __init__(self, channels: int, *, hidden: Width = 32, align_corners: bool = False) -> None:
        """
        Args:
            hidden: width of the last 3x3 convolution; 0 makes the head a single 1x1.
            align_corners: upsample with aligned corners.
        """
        super().__init__()
        self.projection = ConvHead(channels, 3, hidden=hidden, align_corners=align_corners)
        self.projection.init_output(0.0)
        bias = self.projection.last.bias
        assert bias is not None
        with torch.no_grad():
            bias.copy_(torch.tensor([0.0, 0.0, -1.0]))  # a wall that faces the camera
        self.output = HeadSpec(kind="normals", unit="")

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 3 height width"]:
        return F.normalize(self.projection(x, size).float(), dim=1)
