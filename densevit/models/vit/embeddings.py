"""Patch and position embeddings. b images, c channels, h x w pixels, d channels, gh x gw cells."""

import math
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError, DensevitError
from densevit.models.layers import LayerNorm2d
from densevit.ops.resize import is_symbolic, resize, resize_axis


class PatchEmbed(nn.Module):
    """A linear map of every patch: a convolution whose stride is its kernel size.

    The order of a patch's c * patch_size ** 2 numbers is channel, row, column.
    """

    def __init__(self, dim: int, patch_size: int, *, channels: int = 3, bias: bool = True) -> None:
        super().__init__()
        self.patch_size, self.channels = patch_size, channels
        self.proj = self.projection(dim, bias)

    def projection(self, dim: int, bias: bool) -> nn.Module:
        return nn.Conv2d(self.channels, dim, self.patch_size, stride=self.patch_size, bias=bias)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d gh gw"]:
        self.check_size(image)
        return self.proj(image)

    def check_size(self, image: Float[Tensor, "b c h w"]) -> None:
        h, w, p = image.shape[-2], image.shape[-1], self.patch_size
        if h % p or w % p:
            fit = f"resize or pad it to {h + -h % p}x{w + -w % p}"
            raise DensevitError(f"image is {h}x{w}; this ViT needs multiples of {p}: {fit}.")


class ConvStem(PatchEmbed):
    """A stack of convolutions with stride 2: trains faster from scratch (Xiao et al. 2021)."""

    def projection(self, dim: int, bias: bool) -> nn.Module:
        steps = int(math.log2(self.patch_size))
        if 2**steps != self.patch_size:
            raise ConfigError(
                f"stem 'conv' halves the image, so patch_size must be a power of two, not {self.patch_size}."
            )
        widths = [self.channels, *(max(dim // 2 ** (steps - 1 - i), 16) for i in range(steps))]
        halvings = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), LayerNorm2d(b), nn.GELU())
            for a, b in pairwise(widths)
        ]
        return nn.Sequential(*halvings, nn.Conv2d(widths[-1], dim, 1, bias=bias))

    def forward_stages(self, image: Float[Tensor, "b c h w"]) -> tuple[list[Tensor], Float[Tensor, "b d gh gw"]]:
        """Return the maps after each convolution, of strides 2, 4, 8 ..., and the patch embedding."""
        layers = list(self.stages())
        x, maps = image, []
        for layer in layers[:-1]:
            x = layer(x)
            maps.append(x)
        return maps, layers[-1](x)

    def stages(self) -> nn.Sequential:
        assert isinstance(self.proj, nn.Sequential)
        return self.proj

    def stage_channels(self) -> list[int]:
        return [stage[0].out_channels for stage in self.stages()[:-1]]  # type: ignore[index]


STEMS: dict[str, type[PatchEmbed]] = {"patch": PatchEmbed, "conv": ConvStem}


Resampling = Literal["antialias", "offset", "bicubic", "bilinear"]
Positions = Literal["learned", "zeros", "random", "sincos"]


def resample_pos_embed(
    grid: Float[Tensor, "1 cells d"], before: tuple[int, int], after: tuple[int, int], how: Resampling = "antialias"
) -> Float[Tensor, "1 new_cells d"]:
    """Interpolate position embeddings to another grid.

    There are four ways in use, which differ by some percent, so weights need their own:
    timm bicubic with antialias; DINOv2 and Depth Anything bicubic by scale factors with 0.1 added to the size;
    Hugging Face plain bicubic; DPT bilinear.
    """
    if before == after:
        return grid
    image = grid.float().reshape(1, *before, -1).permute(0, 3, 1, 2)
    if how == "antialias":
        image = resize(image, after, "bicubic", antialias=True)
    elif how == "offset" and is_symbolic(*after):
        image = resample_offset(image, before, after)
    elif how == "offset":
        factors = [(new + 0.1) / old for new, old in zip(after, before, strict=True)]
        image = F.interpolate(image, scale_factor=factors, mode="bicubic", align_corners=False)
    else:
        image = F.interpolate(image, size=after, mode=how, align_corners=False)
    return image.permute(0, 2, 3, 1).flatten(1, 2).to(grid.dtype)


def resample_offset(
    image: Float[Tensor, "1 d h w"], before: tuple[int, int], after: tuple[int, int]
) -> Float[Tensor, "1 d new_h new_w"]:
    """Return `offset` in a graph for images of any size, where scale factors would be constants."""
    sides = [torch.scalar_tensor(side, dtype=torch.float64) for side in after]
    same = torch.stack([side == old for side, old in zip(sides, before, strict=True)]).all()
    added = torch.where(same, 0.0, 0.1)  # a grid of the same size is not resampled
    for dim, side, new, old in zip((-2, -1), sides, after, before, strict=True):
        image = resize_axis(image, dim, new, "bicubic", old / (side + added))
    return image


def sincos_pos_embed(dim: int, grid: tuple[int, int]) -> Float[Tensor, "1 cells {dim}"]:
    """Return the sines and cosines of both coordinates (Vaswani et al. 2017; in 2-D as in MoCo v3)."""
    frequencies = 10_000 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    angles = [axis.flatten()[:, None] * frequencies for axis in (columns, rows)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1).float()[None]
