"""Bounded prefetching in threads: results come in order, and only a few items are computed ahead of the consumer."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from threading import Event, Thread
from typing import Any, TypeVar

from densevit.data.datasets.base import Dataset
from densevit.structures import Sample
from densevit.utils.process import poll

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int) -> Iterator[Result]:
    """`map(work, items)` computed by threads, in order; at most `ahead` items are started before they are asked for.

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


def prefetch_iterator(items: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """The items of an iterator that runs in a thread of its own, at most `ahead` of them before they are asked for.

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


def prefetch_samples(dataset: Dataset, ahead: int = 4, threads: int = 2) -> Iterator[Sample]:
    """Every sample once, in order; decoding releases the interpreter's lock, so threads are enough."""
    samples = prefetch(dataset.read, range(len(dataset)), threads=threads, ahead=ahead)
    for index, sample in enumerate(samples):
        poll(f"stopped after {index} of {len(dataset)} images; nothing is written.")
        yield sample
