"""Settings of OpenMP's threads, by which torch computes on a CPU."""

import os

SPINS = "10000"  # tens of microseconds: the pause between two operations


def limit_spinning() -> None:
    """Lets threads that wait for another sleep after a short while; to be called before torch is imported.

    By default GNU's OpenMP lets them turn for milliseconds at each of the hundreds of barriers of a network. Where
    other work needs the cores, our own decoding threads for example, that takes the time of the thread that all wait
    for: twice the processor time for a prediction on two busy cores (docs/speed.md). What the user has set stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
