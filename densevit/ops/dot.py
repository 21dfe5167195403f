"""The inner product of long vectors, on the thread that asks for it."""

import numpy as np
from jaxtyping import Float64

BLOCK = 8192  # OpenBLAS splits longer vectors among threads of its own


def dot_single_thread(a: Float64[np.ndarray, " n"], b: Float64[np.ndarray, " n"]) -> float:
    """sum(a * b).

    `a @ b` wakes BLAS' threads, which wait for one another where several images are scored at once: twice the
    processor's time and no sooner (benchmarks/scoring.py).
    """
    whole = a.size // BLOCK * BLOCK
    rows = np.vecdot(a[:whole].reshape(-1, BLOCK), b[:whole].reshape(-1, BLOCK))
    return float(rows.sum() + np.vecdot(a[whole:], b[whole:]))
