"""Heads for depth (metric, disparity, affine-invariant, inverse, predicted by the decoder itself) and for normals."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.models.decoders.base import DecoderOutput
from densevit.models.heads.base import HEADS, Head, Width
from densevit.models.layers import ConvHead, UpsampleMode, upsample

Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
ScaleFactor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MIN_INVERSE_DEPTH = 1e-8  # 1/m; DPT's lower bound where `shift` is 0


class Activation(NamedTuple):
    depth: Callable[[Tensor, float, float], Tensor]  # of (x, low, high)
    inverse: Callable[[float, float, float], float]  # x of (depth, low, high)


def clamp_ste(x: Float[Tensor, "*shape"], low: float, high: float) -> Float[Tensor, "*shape"]:
    """Clamp with a straight-through gradient, so that pixels beyond the range still learn."""
    return x.detach().clamp(low, high) + (x - x.detach())


def logit(share: float) -> float:
    return math.log(share / (1 - share))


ACTIVATIONS = {
    # Linear in metres: Depth Anything's metric head, with a lower bound above 0 for the logarithm.
    "sigmoid": Activation(
        lambda x, low, high: low + (high - low) * x.sigmoid(),
        lambda depth, low, high: logit((depth - low) / (high - low)),
    ),
    # Linear in log depth.
    "log": Activation(
        lambda x, low, high: low * (math.log(high / low) * x.sigmoid()).exp(),
        lambda depth, low, high: logit(math.log(depth / low) / math.log(high / low)),
    ),
    # x is log depth.
    "exp": Activation(
        lambda x, low, high: clamp_ste(x, math.log(low), math.log(high)).exp(),
        lambda depth, low, high: math.log(depth),
    ),
    # Linear in metres, no gradient at the lower bound: DINOv2's DPT head.
    "relu": Activation(
        lambda x, low, high: low + F.relu(x),
        lambda depth, low, high: depth - low,
    ),
    # Linear in metres, bounded only by the clamp.
    "softplus": Activation(
        lambda x, low, high: low + F.softplus(x),
        lambda depth, low, high: depth - low + math.log(-math.expm1(low - depth)),
    ),
}

Uncertainty = Annotated[
    Literal["laplace"] | None,
    Field(description="laplace: predict the scale of the error of each pixel, too; null: do not"),
]

LOG_SCALE = (-7.0, 5.0)  # of the logarithm of the predicted scale
INITIAL = -2.3  # ln 0.1: a tenth of the depth


class LaplaceScale(nn.Module):
    """Predicts the scale b of a Laplace distribution of the error for each pixel.

    It reads the decoder's map without sending a gradient back, and its loss sees the depth without gradient, so that
    the depth is trained as it would be without it: the weights of everything else are the same to the bit.
    """

    clipped_alone = True  # its gradient's norm is no part of the others' (engine.optim.clipping_groups)

    def __init__(self, channels: int, hidden: int = 32) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # what is built after it draws the numbers that it would without it
            self.projection = ConvHead(channels, 1, hidden=hidden, align_corners=False)
            self.projection.init_output(INITIAL)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        return clamp_ste(self.projection(x.detach(), size).float(), *LOG_SCALE).exp()


class DepthHead(Head):
    """A head that gives depth and, where `uncertainty` asks for it, the scale of its error.

    For metric depth the scale b is that of the error of the natural logarithm: half of the errors are expected under
    0.69 b, 90 % under 2.3 b. For depth without unit it is a share of the map's mean absolute deviation from its median.
    """

    def __init__(self, channels: int, uncertainty: Uncertainty) -> None:
        super().__init__()
        self.uncertainty = None if uncertainty is None else LaplaceScale(channels)
        if uncertainty is not None:
            self.further = {"uncertainty": HeadSpec(kind="uncertainty", unit="")}

    @abstractmethod
    def depth(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        """Return the prediction for the decoder's map `x`."""

    def forward(
        self, x: Float[Tensor, "b c h w"], size: tuple[int, int]
    ) -> Float[Tensor, "b 1 height width"] | DecoderOutput:
        depth = self.depth(x, size)
        return depth if self.uncertainty is None else DecoderOutput(depth, {"uncertainty": self.uncertainty(x, size)})


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
