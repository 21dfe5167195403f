"""Stopping cleanly when asked to."""

import os
import signal
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

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
