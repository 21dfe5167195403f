"""Worker processes that run jobs ahead of time and return results in order, by torch's DataLoader.

What this adds to DataLoader: the workers leave Ctrl-C and SIGTERM to the parent, which decides whether to save; a
worker that dies or hangs becomes an error that names what it was reading; and none of them outlives its work.
"""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from densevit.errors import DataError, DensevitError

Job = TypeVar("Job")
Result = TypeVar("Result")

POLL = 1.0  # seconds between checks whether the workers are alive
HANDLED_BY_PARENT = {signal.SIGINT, signal.SIGTERM}  # signals that workers ignore
IDLE = -1
# Python 3.14 would start a fork server, which dies of a SIGTERM sent to our process group and takes the workers along.
START = "fork" if sys.platform == "linux" else None


class WorkerProgress:
    """The index of the sample that each worker reads, or IDLE; in shared memory."""

    def __init__(self, workers: int) -> None:
        self.indices: Tensor = torch.full((max(workers, 1),), IDLE, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self.pids: Tensor = torch.zeros_like(self.indices).share_memory_()  # type: ignore[no-untyped-call]

    @contextmanager
    def reading(self, index: int) -> Iterator[None]:
        """Mark the sample as being read, in the worker."""
        worker = get_worker_info()
        slot = worker.id if worker else 0
        self.pids[slot] = os.getpid()
        self.indices[slot] = index
        try:
            yield
        finally:
            self.indices[slot] = IDLE

    def busy(self) -> dict[int, int]:
        """Map each worker pid to the index it is reading."""
        pairs = zip(self.pids.tolist(), self.indices.tolist(), strict=True)
        return {pid: index for pid, index in pairs if index != IDLE}


def auto_workers(world_size: int = 1) -> int:
    """Return a worker for every core of this rank but one, at most 12: past that, decoding outruns the model."""
    return max(0, min(num_cores() // world_size - 1, 12))


def num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    jobs: Iterable[Job],
    work: Callable[[WorkerProgress, Job], Result],
    *,
    workers: int,
    timeout: float,
    describe: Callable[[int], str],
    pin: bool = False,
) -> Generator[Result, None, None]:
    """Yield `work(progress, job)` of each job in order; closing the generator ends the workers. Raises DataError: a
    worker died, or nothing came within `timeout`.

    Args:
        work: picklable; runs in the workers, or here when there are none; marks in `progress` what it reads.
        timeout: seconds that one job may keep us waiting.
        describe: names the sample of an index for an error.
        pin: tensors and batches of the results land in page-locked memory, for faster copies to a GPU.
    """
    progress = WorkerProgress(workers)
    if workers == 0:
        for job in jobs:
            result = work(progress, job)
            yield pin_memory(result) if pin else result  # type: ignore[no-untyped-call]
        return
    processes: list[BaseProcess] = []
    loader = DataLoader(
        _Work(partial(work, progress)),
        batch_size=None,
        sampler=jobs,
        num_workers=workers,
        collate_fn=_identity,
        pin_memory=pin,
        timeout=min(POLL, timeout),
        worker_init_fn=_init_worker,
        multiprocessing_context=_listing_context(processes),
        generator=torch.Generator(),  # or it would draw from the training's, whose dropout would depend on the workers
    )
    children = _Children(loader, progress, processes)
    try:
        yield from children.results(timeout, describe)
    finally:
        children.end()


class _Children(Generic[Result]):
    """The worker processes of one pass over the jobs."""

    def __init__(
        self, loader: "DataLoader[Result | DensevitError]", progress: WorkerProgress, processes: list[BaseProcess]
    ) -> None:
        self.progress = progress
        self.processes = processes
        self.start_error: RuntimeError | None = None
        self.results_left: Iterator[Result | DensevitError] | None = None
        try:
            with _block_signals(), _keep_sigchld_handler():
                self.results_left = iter(loader)
        except RuntimeError as error:  # a worker died before all had been started
            self.start_error = error
        # multiprocessing ends its children with SIGTERM, which these ignore, and then waits for them for ever.
        self.kill_all = partial(_kill, self.processes)
        atexit.register(self.kill_all)

    def results(self, timeout: float, describe: Callable[[int], str]) -> Iterator[Result]:
        while True:
            fault = self._wait(timeout)
            if isinstance(fault, str):
                busy = self.progress.busy()
                reading = "; ".join(f"worker {pid} was reading {describe(index)}" for pid, index in busy.items())
                self.end()
                raise DataError(f"{fault} {reading or 'No worker was reading a sample'}.")
            if fault is None:
                return
            if isinstance(fault[0], DensevitError):
                raise fault[0]
            yield fault[0]

    def _wait(self, timeout: float) -> tuple[Result | DensevitError] | str | None:
        """Return the next result; or what went wrong, in words; or None after the last."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                if self.start_error is not None:
                    raise self.start_error
                assert self.results_left is not None
                return (next(self.results_left),)
            except StopIteration:
                return None
            except RuntimeError as error:
                dead = [p for p in self.processes if p.pid is not None and not p.is_alive()]
                if dead:
                    return f"a loader worker died (pid {dead[0].pid}, {_ending(dead[0].exitcode)})."
                if "timed out" not in str(error):
                    raise
                # DataLoader's own time limit ends its wait, not its work: asking again goes on waiting.
                if time.monotonic() >= deadline:
                    return f"no sample came from the loader workers within {timeout:g} s."

    def end(self) -> None:
        # DataLoader asks its workers to end when its iterator is dropped, and waits for them: not for a slow disk.
        busy = self.progress.busy()
        _kill([p for p in self.processes if p.pid in busy])
        self.results_left = None
        _kill(self.processes)
        atexit.unregister(self.kill_all)


class _Work(Dataset[Result | DensevitError], Generic[Job, Result]):
    """A function of a job, in the shape that DataLoader takes."""

    def __init__(self, work: Callable[[Job], Result]) -> None:
        self.work = work

    def __getitem__(self, job: Job) -> Result | DensevitError:
        try:
            return self.work(job)
        except DensevitError as error:
            return error  # raised by the parent; DataLoader would put a traceback before the message


def _identity(result: Result) -> Result:
    return result


def _init_worker(_: int) -> None:
    """Run first in each worker."""
    import cv2  # data sets and transforms use it; its thread pool would fight the other workers for the cores

    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    for number in HANDLED_BY_PARENT:
        signal.signal(number, signal.SIG_IGN)


def _listing_context(processes: list[BaseProcess]) -> BaseContext:
    """Return a context that adds each process it makes to `processes`; `active_children` leaves out the dead."""
    context: Any = copy(multiprocessing.get_context(START))
    make = context.Process

    def listed(*args: Any, **kwargs: Any) -> BaseProcess:
        processes.append(make(*args, **kwargs))
        return processes[-1]

    context.Process = listed
    return context  # type: ignore[no-any-return]


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()


def _ending(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"


@contextmanager
def _block_signals() -> Iterator[None]:
    """Processes started inside ignore SIGINT and SIGTERM, so that no worker dies before `_init_worker`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_BY_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _keep_sigchld_handler() -> Iterator[None]:
    """Remove DataLoader's handler, which raises in the middle of a training step or a save when a worker dies. Dead
    workers are found while waiting for a batch instead, with a better message."""
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
