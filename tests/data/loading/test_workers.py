"""Worker processes that die at the worst moment."""

import os

import pytest
from torch.utils.data import DataLoader

from densevit.data.loading.workers import Progress, run_jobs
from densevit.errors import DataError


def test_a_worker_that_dies_while_the_others_are_started_is_an_error_of_the_user_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def torch_raises(loader: DataLoader[str]) -> None:
        worker = loader.multiprocessing_context.Process(target=os._exit, args=(3,))
        worker.start()
        worker.join()
        raise RuntimeError("DataLoader worker (pid 5) is killed by signal: Killed. ")

    monkeypatch.setattr(DataLoader, "__iter__", torch_raises)
    jobs = run_jobs([1], str, Progress(1), workers=1, timeout=3, describe=str)
    with pytest.raises(DataError, match=r"a loader worker died \(pid \d+, exit code 3\)"):
        next(jobs)
