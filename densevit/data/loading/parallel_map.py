"""A map over indices computed by several processes; results come in order."""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TypeVar

from densevit.data.loading.prefetch import prefetch
from densevit.data.loading.workers import Progress, run_jobs
from densevit.utils.process import poll

Result = TypeVar("Result")
Work = Callable[[int], Result]

JOB = 8  # indices to a job: results are small, and each message between processes costs a tenth of an image
ENOUGH = 64  # items that are worth starting processes for, which takes a third of a second
TIMEOUT = 600.0  # seconds that a job may take: network disks pause for minutes
FORKS = sys.platform == "linux"


def ordered_parallel_map(
    work: Work[Result], count: int, workers: int, describe: Callable[[int], str] = "item {}".format
) -> Generator[Result, None, None]:
    """work(0), work(1), ... computed by `workers` processes, in order, with a bounded number of results waiting.

    Where the system cannot fork, threads are used, which share one interpreter lock. Results should be small, and
    `work` should not use torch, whose threads do not survive a fork. `describe`: names an index, should its worker die.
    Raises DataError: a worker died or hangs. Raises Preempted: a signal came.
    """
    if workers < 2 or count < ENOUGH:
        results: Iterator[Result] = map(work, range(count))
    elif FORKS:
        results = _in_processes(work, count, workers, describe)
    else:
        results = prefetch(work, range(count), threads=workers, ahead=2 * workers)
    for index in range(count):
        poll(f"stopped after {index} of {count} images; nothing is written.")
        yield next(results)


def _in_processes(
    work: Work[Result], count: int, workers: int, describe: Callable[[int], str]
) -> Generator[Result, None, None]:
    progress = Progress(workers)
    jobs = [range(start, min(start + JOB, count)) for start in range(0, count, JOB)]
    done = run_jobs(jobs, partial(_job, work, progress), progress, workers=workers, timeout=TIMEOUT, describe=describe)
    with closing(done):
        for results in done:
            yield from results


def _job(work: Work[Result], progress: Progress, indices: range) -> list[Result]:
    results = []
    for index in indices:
        with progress.reading(index):
            results.append(work(index))
    return results
