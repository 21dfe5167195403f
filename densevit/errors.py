"""Exceptions, grouped by who can fix them. Each carries the exit code that `densevit` ends with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class DensevitError(ValueError):
    """A fault in what was given; the message says where, what came and what would fit."""

    exit_code = 2


def first_line(error: Exception) -> str:
    """Return what another library's error says, for a message of ours."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class ConfigError(DensevitError):
    """A config that cannot mean anything.

    Attributes:
        problems: one line per fault; the message is all of them.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class DataError(DensevitError):
    """A file of a data set is missing, unreadable or not what its data set promises."""


@contextmanager
def located(where: object) -> Iterator[None]:
    """Begin a DataError of the block with where it comes from."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


class CheckpointError(DensevitError):
    """A checkpoint is missing, damaged, or does not fit the model."""


class StorageError(DensevitError):
    """A file could not be written; whatever stood at its path before still does."""


class PartialError(DensevitError):
    """Some items of a batch job failed; the others are done and kept.

    Attributes:
        summary: what became of all of them; `print` shows it.
    """

    exit_code = 3

    def __init__(self, message: str, summary: Any) -> None:
        super().__init__(message)
        self.summary = summary

    def __reduce__(self) -> tuple[type["PartialError"], tuple[str, Any]]:
        return PartialError, (str(self), self.summary)  # errors travel between processes


class Diverged(DensevitError):
    """Training met too many non-finite steps; the last good checkpoint stays."""

    exit_code = 4


class Preempted(Exception):
    """A signal asked us to stop; what could be saved is saved."""

    exit_code = 75
