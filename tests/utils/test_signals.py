import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from densevit.errors import Preempted
from densevit.utils.process import interruptible, poll


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_told_where_one_asks(number: int) -> None:
    poll("nobody listens")
    with interruptible() as stop:
        poll("nothing has come")
        os.kill(os.getpid(), number)
        assert stop.is_set()
        with pytest.raises(Preempted, match="here"):
            poll("here")
    poll("that is over")


def test_blocks_inside_one_another_share_their_signal() -> None:
    with interruptible() as outer:
        with interruptible() as inner:
            assert inner is outer
        os.kill(os.getpid(), signal.SIGTERM)
        assert outer.is_set()


def test_handlers_and_threads_are_as_before() -> None:
    def state() -> list[object]:
        wakeup = signal.set_wakeup_fd(-1)
        return [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), wakeup, threading.active_count()]

    before = state()
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert state() == before


def test_another_thread_gets_an_event_that_no_signal_sets() -> None:
    found: list[bool] = []

    def work() -> None:
        with interruptible() as stop:
            found.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


INSIDE = """
import os, signal, sys
from densevit.utils.process import interruptible
lines = 0
def trace(frame, event, value):
    global lines
    lines += event == "line" and frame.f_code.co_name == sys.argv[1]
    if lines == 2:  # inside `with self._cond` of threading.Event
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGTERM)
    return trace
with interruptible() as stop:
    sys.settrace(trace)
    getattr(stop, sys.argv[1])()
    print(stop.is_set())
"""


@pytest.mark.parametrize("method", ["wait", "set"])
def test_a_signal_inside_a_method_of_the_event_does_not_wait_for_that_method(method: str) -> None:
    assert subprocess.check_output([sys.executable, "-c", INSIDE, method], timeout=20) == b"True\n"


WAITING = """
import sys, time
from pathlib import Path
from densevit.utils import process as signals
signals.GRACE = 0.5
with signals.interruptible() as stop, signals.removed_at_exit(Path(sys.argv[1])):
    print("ready", flush=True)
    stop.wait()
    print("asked", flush=True)
    time.sleep(float(sys.argv[2]))
    print("saved", flush=True)
"""


@pytest.mark.parametrize(("pause", "end"), [(0.0, (0, "saved")), (0.8, (128 + signal.SIGTERM, ""))])
def test_a_second_signal_ends_the_process_only_when_it_is_not_the_first_ones_echo(
    tmp_path: Path, pause: float, end: tuple[int, str]
) -> None:
    (uploads := tmp_path / "uploads").mkdir()
    words = [sys.executable, "-c", WAITING, str(uploads), "0.3" if pause == 0 else "20"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "asked\n"
        time.sleep(pause)
        process.terminate()
        assert (process.wait(20), process.stdout.read().strip()) == end
    assert uploads.exists() == (pause == 0)
