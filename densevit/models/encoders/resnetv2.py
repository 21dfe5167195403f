"""ResNetV2 of hybrid Vision Transformers (Dosovitskiy et al. 2021; BiT, Kolesnikov et al. 2020).

Weight-standardised convolutions with TensorFlow's padding, and group norm.
b images, c channels, h x w pixels. Parameters have timm's names.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

GROUPS = 32
# Added to the variance, as in timm; timm 0.4.5, which DPT used, added 1e-5 to the standard deviation.
STD_CONV_EPS = 1e-8


def pad_same(
    x: Float[Tensor, "b c h w"], kernel: int, stride: int, value: float = 0.0
) -> Float[Tensor, "b c height width"]:
    """TensorFlow's SAME padding: ceil(side / stride) output cells; an odd pixel of padding goes right or bottom."""
    down, right = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (x.shape[-2], x.shape[-1]))
    return F.pad(x, (right // 2, right - right // 2, down // 2, down - down // 2), value=value)


class StdConv2d(nn.Conv2d):
    """Convolution with weight standardisation: each filter has mean 0 and variance 1 (Qiao et al. 2019)."""

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1) -> None:
        super().__init__(before, after, kernel, stride=stride, bias=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d _ _"]:
        filters = self.weight.float().flatten(1)
        variance = filters.var(1, correction=0, keepdim=True)
        filters = (filters - filters.mean(1, keepdim=True)) * (variance + STD_CONV_EPS).rsqrt()
        x = pad_same(x, self.kernel_size[0], self.stride[0])
        return F.conv2d(x, filters.reshape(self.weight.shape).to(self.weight.dtype), stride=self.stride)


class GroupNormAct(nn.GroupNorm):
    """Group norm, then ReLU if `relu`."""

    def __init__(self, channels: int, relu: bool = True) -> None:
        super().__init__(GROUPS, channels)
        self.relu = relu

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        x = super().forward(x)
        return F.relu(x) if self.relu else x


class Stem(nn.Module):
    """7x7 convolution with stride 2 and max pooling: stride 4."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = StdConv2d(3, channels, 7, stride=2)
        self.norm = GroupNormAct(channels)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b c _ _"]:
        return F.max_pool2d(pad_same(self.norm(self.conv(x)), 3, 2, float("-inf")), 3, stride=2)


class DownsampleConv(nn.Module):
    """1x1 convolution on the skip connection where channels or size change."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv = StdConv2d(before, after, 1, stride)
        self.norm = GroupNormAct(after, relu=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d _ _"]:
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """Residual bottleneck: 1x1, 3x3 and 1x1 convolution."""

    def __init__(self, before: int, after: int, stride: int, first: bool) -> None:
        super().__init__()
        narrow = after // 4
        self.downsample = DownsampleConv(before, after, stride) if first else nn.Identity()
        self.conv1 = StdConv2d(before, narrow, 1)
        self.norm1 = GroupNormAct(narrow)
        self.conv2 = StdConv2d(narrow, narrow, 3, stride)
        self.norm2 = GroupNormAct(narrow)
        self.conv3 = StdConv2d(narrow, after, 1)
        self.norm3 = GroupNormAct(after, relu=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d _ _"]:
        branch = self.norm1(self.conv1(x))
        branch = self.norm2(self.conv2(branch))
        return F.relu(self.norm3(self.conv3(branch)) + self.downsample(x))


class Stage(nn.Module):
    def __init__(self, before: int, after: int, stride: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            Bottleneck(before, after, stride, first=True),
            *(Bottleneck(after, after, 1, first=False) for _ in range(depth - 1)),
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d _ _"]:
        return self.blocks(x)


class ResNet(nn.Module):
    """Returns one feature map per stage, at strides 4, 8, 16, ..."""

    def __init__(self, widths: Sequence[int], depths: Sequence[int], stem: int) -> None:
        super().__init__()
        self.stem = Stem(stem)
        pairs = pairwise([stem, *widths])
        self.stages = nn.ModuleList(
            Stage(before, after, 1 if i == 0 else 2, depth)
            for i, ((before, after), depth) in enumerate(zip(pairs, depths, strict=True))
        )

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> list[Float[Tensor, "b _ _ _"]]:
        x, maps = self.stem(image), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps
