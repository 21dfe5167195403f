"""The bundled stereo photograph: real depth."""

import numpy as np
from skimage import data

from densevit.data.datasets.base import DATASETS


def test_the_motorcycle_has_metric_depth_where_it_was_measured() -> None:
    sample = DATASETS.check({"type": "middlebury_motorcycle"}, "data").build().read(0)
    assert sample.image.shape == (500, 741, 3)
    assert 0.92 < sample.valid.mean() < 0.93  # measured by hand: 92.7 %
    assert sample.depth[sample.valid].min() > 2.10 and sample.depth.max() < 5.03  # metres
    assert not sample.depth[~sample.valid].any()


def test_depth_is_focal_times_baseline_over_disparity() -> None:
    sample = DATASETS.check({"type": "middlebury_motorcycle"}, "data").build().read(0)
    disparity = data.stereo_motorcycle()[2]
    row, column = 250, 350
    assert sample.depth is not None and np.isfinite(disparity[row, column])
    expected = 994.978 * 193.001 / 1000 / (disparity[row, column] + 31.086)
    np.testing.assert_allclose(sample.depth[row, column], expected, rtol=1e-6)
