"""The ResNet in front of hybrid Vision Transformers (Dosovitskiy et al. 2021, from Kolesnikov et al. 2020's BiT).

Weight-standardised convolutions with TensorFlow's padding and group norm, so that nothing depends on the batch.
b images, c channels, h x w pixels. Parameters bear timm's names, so that timm's weights load by name.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

GROUPS = 32
# Beside the variance, as timm has it; that of DPT's day (0.4.5) put 1e-5 beside the deviation.
STANDARD_EPS = 1e-8


def pad_same(
    x: Float[Tensor, "b c h w"], kernel: int, stride: int, value: float = 0.0
) -> Float[Tensor, "b c height width"]:
    """TensorFlow's SAME: the answer has ceil(side / stride) cells; an odd pixel of padding goes behind the image."""
    down, right = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (x.shape[-2], x.shape[-1]))
    return F.pad(x, (right // 2, right - right // 2, down // 2, down - down // 2), value=value)


class StandardConv(nn.Conv2d):
    """A convolution whose filters have mean 0 and deviation 1 each (Qiao et al. 2019)."""

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1) -> None:
        super().__init__(before, after, kernel, stride=stride, bias=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d _ _"]:
        filters = self.weight.float().flatten(1)
        variance = filters.var(1, correction=0, keepdim=True)
        filters = (filters - filters.mean(1, keepdim=True)) * (variance + STANDARD_EPS).rsqrt()
        x = pad_same(x, self.kernel_size[0], self.stride[0])
        return F.conv2d(x, filters.reshape(self.weight.shape).to(self.weight.dtype), stride=self.stride)


class Norm(nn.GroupNorm):
    """Group norm, and ReLU where `bend`."""

    def __init__(self, channels: int, bend: bool = True) -> None:
        super().__init__(GROUPS, channels)
        self.bend = bend

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        x = super().forward(x)
        return F.relu(x) if self.bend else x


class Stem(nn.Module):
    """From pixels to a quarter of their size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = StandardConv(3, channels, 7, stride=2)
        self.norm = Norm(channels)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b c _ _"]:
        return F.max_pool2d(pad_same(self.norm(self.conv(x)), 3, 2, float("-inf")), 3, stride=2)


class Shortcut(nn.Module):
    """What a block adds to, where it changes width or size."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv = StandardConv(before, after, 1, stride)
        self.norm = Norm(after, bend=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d _ _"]:
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """Narrow, look around, widen, add."""

    def __init__(self, before: int, after: int, stride: int, first: bool) -> None:
        super().__init__()
        narrow = after // 4
        self.downsample = Shortcut(before, after, stride) if first else nn.Identity()
        self.conv1 = StandardConv(before, narrow, 1)
        self.norm1 = Norm(narrow)
        self.conv2 = StandardConv(narrow, narrow, 3, stride)
        self.norm2 = Norm(narrow)
        self.conv3 = StandardConv(narrow, after, 1)
        self.norm3 = Norm(after, bend=False)

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
    """An image as one map per stage, at strides 4, 8, 16, ..."""

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
