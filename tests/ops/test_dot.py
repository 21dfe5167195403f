"""The inner product, in blocks."""

import math

import numpy as np
import pytest

from densevit.ops.align import BLOCK, dot_single_thread


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3])
def test_it_is_the_exact_sum_up_to_rounding(size: int) -> None:
    rng = np.random.default_rng(size)
    a, b = rng.normal(size=size), rng.normal(size=size)
    assert dot_single_thread(a, b) == pytest.approx(math.fsum(a * b), abs=1e-12 * max(1, size))
    assert dot_single_thread(a[::-1], b[::-1]) == pytest.approx(math.fsum(a * b), abs=1e-12 * max(1, size))
