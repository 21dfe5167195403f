"""What commands print: results once, errors by rank, and what happens where nobody reads."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
