"""How the process keeps memory between arrays of megabytes that come and go."""

import ctypes
import sys

KEPT = 2**30  # bytes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def tune_malloc() -> None:
    """Asks the C library to keep up to a gigabyte of freed memory for the next array.

    glibc takes blocks of over 32 MB from the system each time anew, gives smaller ones back soon, and the system hands
    out every page with a fault: a tenth of a training step or of a prediction on a CPU, a third of scoring a map. This
    holds for the whole process, so it is for programs to ask, not for a library. Other C libraries do not care.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for threshold in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(threshold, KEPT)
