"""Measurements in a fresh process. It imports this file, which therefore imports little."""

import pytest
import torch

from densevit.speed import timing
from densevit.speed.timing import Work


def allocate(megabytes: int) -> Work:
    kept = torch.ones(4)
    return lambda: kept.add(torch.ones(megabytes * 2**18).sum())


@pytest.mark.slow
@pytest.mark.skipif(not timing.STATUS.exists(), reason="only Linux says how much memory a process has")
def test_peak_growth_is_what_the_work_takes_and_not_what_was_there_before() -> None:
    assert 60 < (timing.peak_memory_growth(allocate, 64) or 0) < 110
