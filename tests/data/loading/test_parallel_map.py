"""Work spread over processes: in order, complete, and told of when it goes wrong."""

import os
import signal
from collections.abc import Callable

import pytest

from densevit.data.loading import prefetch
from densevit.data.loading.prefetch import ENOUGH, JOB, ordered_parallel_map
from densevit.errors import DataError

COUNT = ENOUGH + 3


def squared(index: int) -> tuple[int, int]:
    return index**2, os.getpid()


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("count", [0, 1, JOB, ENOUGH, COUNT])
def test_results_come_in_order_whoever_worked(count: int, workers: int) -> None:
    assert [value for value, _ in ordered_parallel_map(squared, count, workers)] == [i**2 for i in range(count)]


@pytest.mark.skipif(not prefetch.FORKS, reason="needs fork")
def test_several_processes_work_where_there_is_enough_to_do() -> None:
    pids = {pid for _, pid in ordered_parallel_map(squared, COUNT, 2)}
    assert len(pids) == 2 and os.getpid() not in pids
    assert {pid for _, pid in ordered_parallel_map(squared, JOB, 3)} == {os.getpid()}


def test_where_a_system_cannot_fork_threads_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "FORKS", False)
    assert list(ordered_parallel_map(squared, COUNT, 3)) == [(i**2, os.getpid()) for i in range(COUNT)]


def refuses(index: int) -> int:
    if index == COUNT - 2:
        raise DataError("depth/0041.png: truncated.")
    return index


def dies(index: int) -> int:
    if index == COUNT - 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


@pytest.mark.skipif(not prefetch.FORKS, reason="needs fork")
@pytest.mark.parametrize(
    ("work", "told"), [(refuses, r"^depth/0041.png: truncated.$"), (dies, r"SIGKILL.*was reading image 65")]
)
def test_what_goes_wrong_in_a_process_is_told_by_name(work: Callable[[int], int], told: str) -> None:
    came = []
    with pytest.raises(DataError, match=told):
        for value in ordered_parallel_map(work, COUNT, 2, "image {}".format):
            came.append(value)
    assert came == list(range(len(came)))
