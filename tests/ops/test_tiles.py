"""Tiles cover a picture, their weights add up to one, and a seam is what jumps where they meet."""

from itertools import pairwise

import numpy as np
import pytest

from densevit.errors import ConfigError
from densevit.inference.tiling import Tiling, seam


@pytest.mark.parametrize("length", [7, 64, 65, 100, 333, 1000])
@pytest.mark.parametrize("overlap", [0.05, 0.25, 0.5])
def test_weights_add_up_to_one_in_every_pixel(length: int, overlap: float) -> None:
    total = np.zeros(length)
    for span in Tiling(64, overlap).spans(length):
        assert 0 <= span.start < span.stop <= length
        assert span.weights.shape == (span.stop - span.start,)
        total[span.slice] += span.weights
    np.testing.assert_allclose(total, 1, atol=1e-6)


@pytest.mark.parametrize("length", [65, 100, 333])
def test_neighbours_share_at_least_the_overlap_and_all_tiles_have_one_side(length: int) -> None:
    spans = Tiling(64, 0.25).spans(length)
    assert {span.stop - span.start for span in spans} == {64}
    assert all(a.stop - b.start >= 16 for a, b in pairwise(spans))
    assert spans[0].start == 0
    assert spans[-1].stop == length


def test_a_picture_no_larger_than_a_tile_is_one_tile_with_weight_one() -> None:
    ((rows, columns),) = Tiling(64).over(64, 40)
    assert (rows.slice, columns.slice) == (slice(0, 64), slice(0, 40))
    assert np.all(rows.weights == 1)


@pytest.mark.parametrize(("side", "overlap"), [(1, 0.25), (64, 0.0), (64, 0.6)])
def test_numbers_that_make_no_tiling_are_refused(side: int, overlap: float) -> None:
    with pytest.raises(ConfigError, match="tile"):
        Tiling(side, overlap)


def test_the_seam_of_a_plane_is_one_and_a_step_at_a_seam_is_seen() -> None:
    tiling = Tiling(64, 0.25)
    rows, columns = np.mgrid[:100, :100]
    plane = 2.0 * rows + columns
    assert seam(plane, tiling) == pytest.approx(1, abs=1e-6)
    # Two tiles of 64 in 100 pixels: the second begins at 36, so the map jumps between columns 35 and 36. Of four lines
    # looked at (a begin and an end in rows and in columns) one is 30 steeper than its 1: (2 + 2 + 31 + 1) / 4 over 1.5.
    plane[:, 36:] += 30
    assert seam(plane, tiling) == pytest.approx(36 / 4 / 1.5, rel=1e-6)


def test_pixels_without_value_do_not_hide_a_seam() -> None:
    tiling = Tiling(64, 0.25)
    values = np.add.outer(np.arange(100.0), np.arange(100.0))
    values[:, 36:] += 30
    whole = seam(values, tiling)
    values[:10] = np.nan
    assert seam(values, tiling) == pytest.approx(whole, rel=0.02)
