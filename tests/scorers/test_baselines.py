"""Baselines of depth data, on maps whose medians are known."""

import numpy as np
import pytest

from densevit.data.datasets.pairs import as_dataset
from densevit.scorers.baselines import depth_maps, describe_baselines

IMAGE = np.zeros((48, 64, 3), np.uint8)


def test_the_median_of_each_pixel_and_the_best_constant_are_scored_on_other_images() -> None:
    """Left 1 m and right 4 m, but for one of three images; AbsRel is least for the constant 1: (0 + 3/4) / 2."""
    usual = np.where(np.arange(64) < 32, 1, 4)[None].repeat(48, 0).astype(np.float32)
    train = as_dataset([(IMAGE, usual), (IMAGE, usual), (IMAGE, np.full_like(usual, 9))])
    text = describe_baselines(train, as_dataset([(IMAGE, usual)]))
    assert "abs_rel 0.000, d1 1.000 by the median of the training at each pixel" in text
    assert "abs_rel 0.375, d1 0.500 by 1.00 m (1 images)" in text


@pytest.mark.parametrize("empty", [np.zeros((4, 6), np.float32), None, "unreadable.png"])
def test_maps_are_spread_over_the_data_and_images_without_depth_passed_over(empty: np.ndarray | str | None) -> None:
    maps = [np.full((4, 6), i, np.float32) if i else empty for i in range(11)]
    found = [float(depth[0, 0]) for depth in depth_maps(as_dataset([(IMAGE[:4, :6], depth) for depth in maps]), 3)]
    assert found == pytest.approx([5, 10])
