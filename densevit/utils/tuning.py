"""Settings of this process that make torch faster: the allocator, garbage collection, OpenMP's threads."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = 2**30  # bytes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def tune_malloc() -> None:
    """Let glibc keep up to a gigabyte of freed memory for the next array.

    By default glibc maps blocks of over 32 MB anew each time, and the page faults cost a tenth of a training step or of
    a prediction on a CPU, and a third of scoring a map. This changes the whole process, so programs call it, not the
    library. Other C libraries ignore it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for threshold in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(threshold, KEPT)


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Leave the objects of the moment out of garbage collections, which otherwise halt a training step.

    A process that has frozen objects already, as before it forks, is left alone.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


SPINS = "10000"  # tens of microseconds: the pause between two operations


def limit_spinning() -> None:
    """Let threads that wait for another sleep after a short while; to be called before torch is imported.

    By default GNU's OpenMP lets them turn for milliseconds at each of the hundreds of barriers of a network. Where
    other work needs the cores, our own decoding threads for example, that takes the time of the thread that all wait
    for: twice the processor time for a prediction on two busy cores (docs/speed.md). What the user has set stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
