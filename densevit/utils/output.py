"""What commands print while they work and at their end: progress bars and outcomes. The one place that imports tqdm."""

import os
import sys
from threading import RLock
from typing import Any

from tqdm.auto import tqdm as auto_tqdm

LINE_EVERY = 10.0  # seconds between the lines of a log file
LINE = "{l_bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class tqdm(auto_tqdm):  # type: ignore[type-arg]  # noqa: N801  takes the place of tqdm's own
    """A progress bar; where stderr is neither a terminal nor a notebook, a plain line every ten seconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("disable", False) is False and sys.stderr is not None and not shows_bars():
            kwargs |= {"file": Lines(sys.stderr), "bar_format": LINE, "delay": LINE_EVERY, "leave": True}
            kwargs |= {"mininterval": LINE_EVERY, "maxinterval": LINE_EVERY}
        super().__init__(*args, **kwargs)


# tqdm's own is for processes, too: it sets the start method of the program and, from Python 3.14 on, starts a process.
tqdm.set_lock(RLock())


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
