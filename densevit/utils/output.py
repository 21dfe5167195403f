"""What commands print: results once, errors by rank, and what happens where nobody reads."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def print_once(text: object) -> None:
    """Of several processes, the first one prints."""
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
    """Standard error that goes on where nobody reads it any more: messages are lost, work is not."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard(stream: Any) -> None:
    """Leads a stream whose reader has gone to nowhere, what it still holds too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def open_standard_streams() -> Iterator[None]:
    """Standard streams that the caller closed (`2>&-`) lead to nowhere, so that no file takes their numbers."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(nowhere)
    before = sys.stderr
    sys.stderr = LossyStream(before if before is not None else open(os.devnull, "w"))  # noqa: SIM115
    try:
        yield
    finally:
        sys.stderr = before
