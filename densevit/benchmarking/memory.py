"""How much memory some work takes at its peak, measured in a process of its own; Linux tells, others do not."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

Prepared = Callable[..., Callable[[], object]]
"""Makes ready, outside the measurement, and returns the work."""

STATUS = Path("/proc/self/status")


def peak_growth(prepare: Prepared, *args: Any) -> float | None:
    """MB by which the peak of a fresh process grows over two runs of the work; None where the system does not say.

    Args:
        prepare: a function that a fresh process can import.
    """
    if not STATUS.exists():
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (prepare, args))


def _measure(prepare: Prepared, args: tuple[Any, ...]) -> float:
    work = prepare(*args)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of getting ready
    before = status("VmRSS")
    work()
    work()
    return status("VmHWM") - before


def status(what: str) -> float:
    """MB that this process holds (`VmRSS`), or held at its peak (`VmHWM`)."""
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(what))
