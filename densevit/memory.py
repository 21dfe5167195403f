"""How the process keeps memory between arrays of megabytes that come and go."""

import numpy as np

LARGEST = 2**25 - 2**16
"""Just under the 32 MB to which glibc's thresholds grow (mallopt(3), M_MMAP_THRESHOLD)."""


def keep_freed() -> None:
    """Asks the C library to keep up to 64 MB of freed memory, for a loop that takes and frees arrays.

    glibc returns freed memory to the system beyond twice the largest block that it has seen freed, and every page of it
    is faulted in again by the next array: without this, a third of the time to score an image. One large block, freed
    at once, moves the threshold; its pages are never touched. Other C libraries do not care.
    """
    np.empty(LARGEST, np.uint8)
