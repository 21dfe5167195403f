"""Processes: whether one runs, memory and standard streams of this one, and graceful stopping by the first SIGINT or
SIGTERM. Imports neither torch nor tqdm, for quick commands.

`timeout`, torchrun and job schedulers signal a process and its group, so that one request comes twice within
milliseconds. A second signal counts only after `GRACE` seconds, and ends the process at once.
"""

import gc
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from densevit.errors import Preempted

KEPT = 2**30  # bytes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def tune_malloc() -> None:
    """Let glibc keep up to a gigabyte of freed memory for the next array.

    By default glibc maps blocks of over 32 MB anew each time, and the page faults cost a tenth of a training step or of
    a prediction on a CPU, and a third of scoring a map. This changes the whole process, so programs call it, not the
    library. Other C libraries ignore it.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for threshold in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(threshold, KEPT)


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Leave the objects of the moment out of garbage collections, which otherwise halt a training step.

    A process that has frozen objects already, as before it forks, is left alone.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


SPINS = "10000"  # tens of microseconds: the pause between two operations


def limit_spinning() -> None:
    """Let threads that wait for another sleep after a short while; to be called before torch is imported.

    By default GNU's OpenMP lets them turn for milliseconds at each of the hundreds of barriers of a network. Where
    other work needs the cores, our own decoding threads for example, that takes the time of the thread that all wait
    for: twice the processor time for a prediction on two busy cores (docs/speed.md). What the user has set stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def process_exists(pid: int) -> bool:
    """Return whether a process of this machine runs; True where the system does not tell."""
    if os.name == "nt":
        return True  # signal 0 is Ctrl+C there
    if (stat := _stat(pid)) and stat[0] in "ZX":
        return False  # ended, and not yet waited for by its parent
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_start(pid: int) -> str:
    """Return when a process started, in ticks since boot; it tells a number that is used again. Empty where unknown."""
    stat = _stat(pid)
    return stat[19] if stat else ""


def machine_id() -> str:
    """Return where process numbers can be compared: host, boot and container. Empty where the system does not tell."""
    if os.name == "nt":
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()} {namespace.readlink()}"
    except OSError:  # no Linux
        return socket.gethostname()


def peak_memory() -> int | None:
    """Return the most bytes that this process has held; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none where there is no such file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


OURS = (signal.SIGINT, signal.SIGTERM)
GRACE = 1.5
"""Seconds after the first signal in which further ones are taken for the same request."""
_REMOVED_AT_EXIT: set[Path] = set()


class StopRequest(threading.Event):
    """An event that a signal handler may set.

    A handler may interrupt a thread inside `wait` or `set`, which hold the lock of a `threading.Event`: to set that
    one would never return.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asked = False

    def is_set(self) -> bool:
        return self._asked

    def set(self) -> None:
        self._asked = True

    def wait(self, timeout: float | None = None) -> bool:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self._asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.1, left))
        return self._asked


class SignalHandler:
    """The handler of both signals; the first sets `asked`. `_end_at_second` acts on later ones."""

    def __init__(self) -> None:
        self.asked = StopRequest()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            return
        self.asked.set()
        # os.write: a signal may come in the middle of a print.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping soon, and saving (again: at once).\n")


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; one after `GRACE` seconds ends the process at once.

    Inside another such block it is that block's event. Outside the main thread, where Python allows no handlers, the
    event is never set.
    """
    if (outer := _listener()) is not None:
        yield outer.asked
        return
    listener = SignalHandler()
    if threading.current_thread() is not threading.main_thread():
        yield listener.asked
        return
    before = {number: signal.signal(number, listener) for number in OURS}
    try:
        with _second_signal_ends():
            yield listener.asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def removed_at_exit(folder: Path) -> Iterator[None]:
    """Remove a folder also if a second signal ends the process inside the block."""
    _REMOVED_AT_EXIT.add(folder)
    try:
        yield
    finally:
        _REMOVED_AT_EXIT.discard(folder)


def poll(message: str) -> None:
    """Call this in long loops, where nothing is half done. Raises Preempted: with `message`, if a signal came to the
    `interruptible` block around the caller."""
    listener = _listener()
    if listener is not None and listener.asked.is_set():
        raise Preempted(message)


def request_stop() -> None:
    """Ask the work in an `interruptible` block of the main thread to stop, as a first signal does."""
    if (listener := _listener()) is not None:
        listener.asked.set()


def _listener() -> SignalHandler | None:
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, SignalHandler) else None


@contextmanager
def _second_signal_ends() -> Iterator[None]:
    """Python runs handlers only between its own instructions: a process that waits in a collective, or for a disk,
    would not react to the second signal. A thread does."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_end_at_second, args=(reader,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.send(b"\0")
        thread.join()
        reader.close()
        writer.close()


def _end_at_second(signals: socket.socket) -> None:
    """Read the numbers of the signals that came, until a zero."""
    first = None
    while number := signals.recv(1)[0]:
        if number not in OURS:
            continue
        first = first or time.monotonic()
        if time.monotonic() - first >= GRACE:
            for folder in _REMOVED_AT_EXIT:
                shutil.rmtree(folder, ignore_errors=True)
            os._exit(128 + number)


def print_once(text: object) -> None:
    """Print on the first of several processes alone."""
    if os.environ.get("RANK", "0") == "0":
        print(text)


def error_prefix() -> str:
    rank = os.environ.get("RANK", "0")
    return "error: " if rank == "0" else f"error (rank {rank}): "


class LossyStream:
    """Standard error that goes on where nobody reads it any more or its disk is full: messages are lost, work is not.

    Attributes:
        lost: whether text was lost.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self.lost = stream, False

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        discard(self._stream)
        self.lost = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class StandardOutput(LossyStream):
    """Standard output that goes on where its disk is full, and says so; a reader that has gone ends the command."""

    def _lose(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            raise error
        super()._lose(error)
        print(f"warning: standard output is lost from here on ({error.strerror}).", file=sys.stderr)


def discard(stream: Any) -> None:
    """Lead a stream whose reader has gone to nowhere, what it still holds too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def open_standard_streams() -> Iterator[None]:
    """Lead standard streams that the caller closed (`2>&-`) to nowhere, so that no file takes their numbers."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(nowhere)
    before = sys.stdout, sys.stderr
    sys.stderr = LossyStream(sys.stderr if sys.stderr is not None else open(os.devnull, "w"))  # noqa: SIM115
    if sys.stdout is not None:
        sys.stdout = StandardOutput(sys.stdout)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
