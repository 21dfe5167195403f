"""Time and memory of work in a fresh process, whose allocator and threads nothing else has used."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from densevit.benchmark.interleaved_timing import Work, time_once

Prepare = Callable[..., Work]
"""Does what shall not be measured, and returns the work; a function that a fresh process can import."""

STATUS = Path("/proc/self/status")


def time_in_subprocess(prepare: Prepare, *args: Any) -> float:
    """Seconds of the work in a fresh process."""
    return _run(_time, prepare, args)


def peak_memory_growth(prepare: Prepare, *args: Any) -> float | None:
    """MB by which the peak memory of a fresh process grows over two runs of the work; None outside of Linux."""
    return _run(_measure_memory, prepare, args) if STATUS.exists() else None


def _run(measure: Callable[[Prepare, tuple[Any, ...]], float], prepare: Prepare, args: tuple[Any, ...]) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (prepare, args))


def _time(prepare: Prepare, args: tuple[Any, ...]) -> float:
    return time_once(prepare(*args))


def _measure_memory(prepare: Prepare, args: tuple[Any, ...]) -> float:
    work = prepare(*args)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = megabytes("VmRSS")
    work()
    work()
    return megabytes("VmHWM") - before


def megabytes(field: str) -> float:
    """Memory that this process has (`VmRSS`), or had at its peak (`VmHWM`)."""
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(field))
