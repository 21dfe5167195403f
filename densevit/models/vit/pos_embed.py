"""Position embeddings and their interpolation to other grids. d channels, h x w cells."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from densevit.ops.resize import is_symbolic, resize, resize_axis

Resampling = Literal["antialias", "offset", "bicubic", "bilinear"]
Positions = Literal["learned", "zeros", "random", "sincos"]


def resample_pos_embed(
    grid: Float[Tensor, "1 cells d"], before: tuple[int, int], after: tuple[int, int], how: Resampling = "antialias"
) -> Float[Tensor, "1 new_cells d"]:
    """Interpolates position embeddings to another grid.

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
    """`offset` in a graph for images of any size, where scale factors would be constants."""
    sides = [torch.scalar_tensor(side, dtype=torch.float64) for side in after]
    same = torch.stack([side == old for side, old in zip(sides, before, strict=True)]).all()
    added = torch.where(same, 0.0, 0.1)  # a grid of the same size is not resampled
    for dim, side, new, old in zip((-2, -1), sides, after, before, strict=True):
        image = resize_axis(image, dim, new, "bicubic", old / (side + added))
    return image


def sincos_pos_embed(dim: int, grid: tuple[int, int]) -> Float[Tensor, "1 cells {dim}"]:
    """Sines and cosines of both coordinates (Vaswani et al. 2017; in 2-D as in MoCo v3)."""
    frequencies = 10_000 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    angles = [axis.flatten()[:, None] * frequencies for axis in (columns, rows)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1).float()[None]
