"""Layers of blocks, decoders and heads: MLPs, norms, DPT's convolutional head, fused levels.

b images, n tokens of d channels; c channels, h x w pixels. MLPs and scales have timm's parameter names; timm's own
bring torchvision and, with it, torch's compiler: a third of the time in which a command starts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.structures import EncoderOutput, FeatureSpec

Norm = Literal["none", "batch", "layer", "group"]


class LayerScale(nn.Module):
    """Multiply each channel by a learned factor (Touvron et al. 2021)."""

    def __init__(self, dim: int, init_value: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), init_value))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma


class DropPath(nn.Module):
    """Leave out a residual branch for some images of a batch in training: stochastic depth (Huang et al. 2016)."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if not self.training:
            return x
        kept = x.new_empty(x.shape[0], 1, 1).bernoulli_(1 - self.drop_prob)
        return x * kept.div_(1 - self.drop_prob)


class QuickGELU(nn.Module):
    """Approximate GELU by x sigmoid(1.702 x), as OpenAI's CLIP does; off by up to 0.02."""

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * torch.sigmoid(1.702 * x)


class Mlp(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, dim: int, hidden: int, *, act: Callable[[], nn.Module] = nn.GELU, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = act()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class SwiGLU(nn.Module):
    """Gate the hidden channels by SiLU (Shazeer 2020): fc2(silu(fc1_g(x)) fc1_x(x))."""

    def __init__(self, dim: int, hidden: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(dim, hidden)
        self.fc1_x = nn.Linear(dim, hidden)
        self.act = nn.SiLU()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.fc2(self.drop(self.act(self.fc1_g(x)) * self.fc1_x(x))))

    def init_gate(self) -> None:
        """Begin with a gate that is the same for every input, as timm does."""
        nn.init.ones_(self.fc1_g.bias)
        nn.init.normal_(self.fc1_g.weight, std=1e-6)


class PackedSwiGLU(nn.Module):
    """SwiGLU with gate and value in one matrix, as in DINOv2's giant; `hidden` counts both.

    Raises ConfigError: an odd number of hidden channels.
    """

    def __init__(self, dim: int, hidden: int, *, drop: float = 0.0) -> None:
        super().__init__()
        if hidden % 2:
            raise ConfigError(f"mlp 'swiglu_packed' needs an even number of hidden channels, not {hidden}.")
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.SiLU()
        self.fc2 = nn.Linear(hidden // 2, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop(self.fc2(self.drop(self.act(gate) * value)))

    def init_gate(self) -> None:
        """Begin with a value that is the same for every input: timm takes the second half, which is not the gate."""
        half = self.fc1.out_features // 2
        nn.init.ones_(self.fc1.bias[half:])
        nn.init.normal_(self.fc1.weight[half:], std=1e-6)


class LayerNorm2d(nn.LayerNorm):
    """Normalise the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def build_norm(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "layer":
        return LayerNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(math.gcd(32, channels), channels)
    return nn.Identity()


def conv_block(before: int, after: int, kernel: int, norm: Norm) -> nn.Sequential:
    """Return convolution, norm and ReLU."""
    conv = nn.Conv2d(before, after, kernel, padding=kernel // 2, bias=norm == "none")
    return nn.Sequential(conv, build_norm(norm, after), nn.ReLU())


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
            mid_channels: channels after the first; by default half of `channels`, at least `hidden`.
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
        """Initialise the last layer so that the output is about `value` everywhere."""
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


Names = Annotated[tuple[str, ...], Field(min_length=2)]
ClassCount = Annotated[int, Field(ge=2, le=2**20)]
Classes = ClassCount | Names | None
"""Names of classes in the order of their ids, or their number; None takes those of the training data."""


def class_names(classes: Classes) -> tuple[str, ...]:
    """Raise ConfigError: None, where no data set names the classes."""
    if classes is None:
        raise ConfigError(
            "classes: missing, and the data set names none; give them, or a classes.json in its folder. To train "
            "without this head, set its task to null, as in tasks.labels=null."
        )
    return tuple(map(str, range(classes))) if isinstance(classes, int) else classes


Fuse = Literal["concat", "sum"]


def fused_spec(features: list[FeatureSpec], fuse: Fuse) -> FeatureSpec:
    """Return the channels and stride of the result of `fuse_maps`. Raises ConfigError: a sum of maps with different
    channels."""
    channels = [spec.channels for spec in features]
    if fuse == "sum" and len(set(channels)) > 1:
        raise ConfigError(f"decoder.fuse: 'sum' needs maps of one width, not {channels}; 'concat' fits.")
    return FeatureSpec(sum(channels) if fuse == "concat" else channels[0], features[0].stride)


def fuse_maps(features: EncoderOutput, fuse: Fuse) -> Float[Tensor, "b c h w"]:
    if len(features.maps) == 1:
        return features.maps[0]
    maps = resize_to_first(features.maps)
    return torch.cat(maps, dim=1) if fuse == "concat" else torch.stack(maps).sum(0)


def resize_to_first(maps: Sequence[Float[Tensor, "b _ _ _"]]) -> list[Float[Tensor, "b _ h w"]]:
    """Resize all maps to the first, bilinear, as mmseg's `resize_concat`."""
    return [upsample(map_, (maps[0].shape[-2], maps[0].shape[-1])) for map_ in maps]
