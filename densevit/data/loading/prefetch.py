"""Work done ahead in threads or processes: results come in order, and only a few before they are asked for."""

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from queue import Queue
from threading import Event, Thread
from typing import Any, TypeVar

from densevit.data.datasets.base import Dataset
from densevit.data.loading.workers import WorkerProgress, run_jobs
from densevit.structures import Sample
from densevit.utils.process import poll

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int) -> Iterator[Result]:
    """Yield `map(work, items)` computed by threads, in order; at most `ahead` items are started before they are asked
    for.

    `items` is iterated in the caller's thread. Closing the iterator cancels what has not begun.
    """
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def paired(items: Iterable[Item], work: Callable[[Iterator[Item]], Iterable[Result]]) -> Iterator[tuple[Item, Result]]:
    """Yield each item with its result. `work`: makes one of each in order, and may read some items ahead."""
    waiting: deque[Item] = deque()

    def read() -> Iterator[Item]:
        for item in items:
            waiting.append(item)
            yield item

    for result in work(read()):
        yield waiting.popleft(), result


def prefetch_iterator(items: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield the items of an iterator that runs in a thread of its own, at most `ahead` of them before they are asked
    for.

    Its error is raised here. Closing this one ends it at its next item.
    """
    queue: Queue[tuple[str, Any]] = Queue(ahead)
    closed = Event()

    def run() -> None:
        try:
            for item in items:
                queue.put(("item", item))
                if closed.is_set():
                    break
            queue.put(("end", None))
        except BaseException as error:
            queue.put(("error", error))
        finally:
            if isinstance(items, Generator):
                items.close()

    thread = Thread(target=run, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            what, value = queue.get()
            if what == "error":
                raise value
            if what == "end":
                return
            yield value
    finally:
        closed.set()
        while thread.is_alive():  # it may wait for room in the queue
            while not queue.empty():
                queue.get_nowait()
            thread.join(timeout=0.05)


def prefetch_samples(dataset: Dataset) -> Iterator[Sample]:
    """Yield every sample once, in order; decoding releases the interpreter's lock, so threads are enough."""
    samples = prefetch(dataset.read, range(len(dataset)), threads=2, ahead=4)
    for index, sample in enumerate(samples):
        poll(f"stopped after {index} of {len(dataset)} images; nothing is written.")
        yield sample


Work = Callable[[int], Result]

JOB = 8  # indices to a job: results are small, and each message between processes costs a tenth of an image
ENOUGH = 64  # items that are worth starting processes for, which takes a third of a second
TIMEOUT = 600.0  # seconds that a job may take: network disks pause for minutes
FORKS = sys.platform == "linux"


def ordered_parallel_map(
    work: Work[Result], count: int, workers: int, describe: Callable[[int], str] = "item {}".format
) -> Generator[Result, None, None]:
    """Yield work(0), work(1), ... computed by `workers` processes, in order, with a bounded number of results waiting.

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
    jobs = [range(start, min(start + JOB, count)) for start in range(0, count, JOB)]
    done = run_jobs(jobs, partial(_job, work), workers=workers, timeout=TIMEOUT, describe=describe)
    with closing(done):
        for results in done:
            yield from results


def _job(work: Work[Result], progress: WorkerProgress, indices: range) -> list[Result]:
    results = []
    for index in indices:
        with progress.reading(index):
            results.append(work(index))
    return results
