"""Baselines of depth without a model, which a model must beat: one constant, and the median of each pixel."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import cv2
import numpy as np
from jaxtyping import Bool, Float, Float32

from densevit.data.datasets.base import Dataset, evenly_spaced, open_dataset
from densevit.errors import DataError, DensevitError
from densevit.ops.align import weighted_median
from densevit.registry import ComponentConfig

FEWEST = 8  # images of the training, and to score, from which on baselines are reported
TRAINED, SCORED = 200, 100  # images looked at
GRID = (48, 64)  # of the median per pixel


def describe_baselines(train: Dataset, scored: Dataset) -> str:
    """Return the mean AbsRel and d1 of both baselines on images of `scored`; "" where there is no depth."""
    maps = list(depth_maps(train, TRAINED))
    if not maps:
        return ""
    small = np.stack([cv2.resize(depth, GRID[::-1], interpolation=cv2.INTER_NEAREST) for depth in maps])
    values = small[small > 0].astype(np.float64)
    constant = weighted_median(values, 1 / values)  # which has the least AbsRel
    median = np.full(GRID, constant, np.float32)
    seen = (small > 0).any(0)
    median[seen] = np.nanmedian(np.where(small > 0, small, np.nan)[:, seen], 0)
    rows = []
    for depth in depth_maps(scored, SCORED):
        h, w = depth.shape
        valid = depth > 0
        predictions = cv2.resize(median, (w, h), interpolation=cv2.INTER_LINEAR)[valid], np.float32(constant)
        ratios = [each / depth[valid] for each in predictions]
        rows.append([(np.abs(x - 1).mean(), (np.maximum(x, 1 / x) < 1.25).mean()) for x in ratios])
    if not rows:
        return ""
    (median_rel, median_d1), (constant_rel, constant_d1) = np.mean(rows, 0).tolist()
    return (
        f"without a model, in metres: abs_rel {median_rel:.3f}, d1 {median_d1:.3f} by the median of the training at "
        f"each pixel; abs_rel {constant_rel:.3f}, d1 {constant_d1:.3f} by {constant:.2f} m ({len(rows)} images)"
    )


def recorded_baselines(train: ComponentConfig, scored: Dataset) -> str:
    """Return the same, of the data that trained a checkpoint; "" where it is no longer there."""
    try:
        data = open_dataset(train)
        return describe_baselines(data, scored) if len(data) >= FEWEST else ""
    except DensevitError:
        return ""


def depth_maps(data: Dataset, count: int) -> Iterator[Float32[np.ndarray, "h w"]]:
    """Yield at most `count` maps with any depth, evenly spaced; unreadable ones are reported by who needs them."""
    for index in evenly_spaced(len(data), count):
        depth = None
        with suppress(DataError):
            depth = data.depth_map(index) if data.depth_kind(index) == "metric" else None
        if depth is not None and (depth > 0).any():
            yield depth


def median_depth_map(
    depths: Iterable[Float[np.ndarray, "h w"]], valids: Iterable[Bool[np.ndarray, "h w"]]
) -> Float32[np.ndarray, "h w"]:
    """Return the per-pixel median of depth maps of one size, in metres, over the images that measured the pixel.

    A pixel that no image measured takes the median of the map. All maps are held in memory, as float32. Raises
    DataError: no map, maps of several sizes, or not one measured pixel.
    """
    stack = [np.where(valid, depth, np.nan).astype(np.float32) for depth, valid in zip(depths, valids, strict=True)]
    sizes = sorted({depth.shape for depth in stack})
    if len(sizes) != 1:
        raise DataError(f"a constant map needs depth maps of one size, got {sizes or 'none'}.")
    maps = np.stack(stack)
    measured = np.isfinite(maps).any(0)
    if not measured.any():
        raise DataError(f"none of {len(stack)} depth maps has a measured pixel.")
    median = np.empty(sizes[0], np.float32)
    median[measured] = np.nanmedian(maps[:, measured], 0)
    median[~measured] = np.median(median[measured])
    return median
