"""The constant baseline: the per-pixel median of training depth maps, which a model must beat."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float, Float32

from densevit.errors import DataError

STRIP = 32  # rows sorted at a time: the working memory is a small part of the maps themselves


def median_depth_map(
    depths: Iterable[Float[np.ndarray, "h w"]], valids: Iterable[Bool[np.ndarray, "h w"]]
) -> Float32[np.ndarray, "h w"]:
    """The per-pixel median of depth maps of one size, in metres, over the images that measured the pixel.

    A pixel that no image measured takes the median of the map. All maps are held in memory, as float32. Raises
    DataError: no map, maps of several sizes, or not one measured pixel.
    """
    stack = [np.where(valid, depth, np.inf).astype(np.float32) for depth, valid in zip(depths, valids, strict=True)]
    sizes = sorted({depth.shape for depth in stack})
    if len(sizes) != 1:
        raise DataError(f"a constant map needs depth maps of one size, got {sizes or 'none'}.")
    strips = range(0, sizes[0][0], STRIP)
    median = np.concatenate([_median(np.stack([depth[y : y + STRIP] for depth in stack], axis=-1)) for y in strips])
    known = np.isfinite(median)
    if not known.any():
        raise DataError(f"none of {len(stack)} depth maps has a measured pixel.")
    median[~known] = np.median(median[known])
    return median


def _median(strip: Float32[np.ndarray, "h w n"]) -> Float32[np.ndarray, "h w"]:
    """The median of the finite values of each pixel; infinity where there is none."""
    strip.sort(axis=-1)
    n = np.isfinite(strip).sum(-1)
    lower, upper = (np.take_along_axis(strip, i[..., None], -1)[..., 0] for i in ((n - 1).clip(0) // 2, n // 2))
    return np.where(n > 0, (lower + upper) / 2, np.inf).astype(np.float32)
