"""Settings of the C library's allocator, and of Python's garbage collection."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = 2**30  # bytes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def tune_malloc() -> None:
    """Lets glibc keep up to a gigabyte of freed memory for the next array.

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
    """Objects that are there when training begins are left out of garbage collections, which else halt a step."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
