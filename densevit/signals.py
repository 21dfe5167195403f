"""Stopping cleanly when asked to."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from densevit.errors import Preempted


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yields an event that the first SIGINT or SIGTERM sets; the second ends the process at once.

    Outside the main thread, where Python takes no handlers, the event is only yielded.
    """
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            os._exit(Preempted.exit_code)
        asked.set()
        # os.write: a signal may come in the middle of a print.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping soon, and saving (again: at once).\n")

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
