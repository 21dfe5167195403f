"""What commands print: results once, errors by rank, and what happens where nobody reads."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm as auto_tqdm

__all__ = ["in_notebook", "shows_bars", "tqdm"]

LINE_EVERY = 10.0  # seconds between the lines of a log file
LINE = "{l_bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class tqdm(auto_tqdm):  # type: ignore[type-arg]  # noqa: N801  takes the place of tqdm's own
    """A progress bar; where stderr is neither a terminal nor a notebook, a plain line every ten seconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("disable", False) is False and sys.stderr is not None and not shows_bars():
            kwargs |= {"file": Lines(sys.stderr), "bar_format": LINE, "delay": LINE_EVERY, "leave": True}
            kwargs |= {"mininterval": LINE_EVERY, "maxinterval": LINE_EVERY}
        super().__init__(*args, **kwargs)


class Lines:
    """What a bar draws over and over in one place, as lines of text."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.encoding = getattr(file, "encoding", None)

    def write(self, text: str) -> None:
        if line := text.strip():
            self.file.write(line + "\n")

    def flush(self) -> None:
        self.file.flush()


def shows_bars() -> bool:
    """Return whether what is printed to stderr can be drawn over: by a notebook, or a terminal that has a width."""
    return in_notebook() or (sys.stderr.isatty() and terminal_width() > 0)


def terminal_width() -> int:
    """Return the columns of the terminal behind stderr; 0 where it has none, as pseudo-terminals of some programs."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0


def in_notebook() -> bool:
    """Return whether a Jupyter kernel shows what is printed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and "IPKernelApp" in shell.config


def print_once(text: object) -> None:
    """Print on the first of several processes alone."""
    if os.environ.get("RANK", "0") == "0":
        print(text)


def say_written(*paths: object) -> None:
    """Say on standard error which files were written."""
    print("written: " + ", ".join(map(str, paths)), file=sys.stderr)


class Outcome(str):
    """What a command prints at its end, with its exit code."""

    exit_code: int

    def __new__(cls, text: str, exit_code: int) -> "Outcome":
        made = super().__new__(cls, text)
        made.exit_code = exit_code
        return made


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
