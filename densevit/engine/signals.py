"""A signal asks training to stop at the next step, where everything can be saved."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """True once SIGINT or SIGTERM came; a second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        print(
            f"\n{signal.Signals(number).name}: stopping after this step (again: at once).", file=sys.stderr, flush=True
        )


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    stop = Stop()
    old = {number: signal.signal(number, stop._receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
