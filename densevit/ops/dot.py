"""Single-threaded inner product of long vectors."""

import numpy as np
from jaxtyping import Float64

BLOCK = 8192  # OpenBLAS computes longer vectors in several threads


def dot_single_thread(a: Float64[np.ndarray, " n"], b: Float64[np.ndarray, " n"]) -> float:
    """sum(a * b).

    `a @ b` starts the threads of BLAS, which wait for one another where several images are scored at once: twice the
    CPU time and no faster (benchmarks/scoring.py).
    """
    whole = a.size // BLOCK * BLOCK
    rows = np.vecdot(a[:whole].reshape(-1, BLOCK), b[:whole].reshape(-1, BLOCK))
    return float(rows.sum() + np.vecdot(a[whole:], b[whole:]))
