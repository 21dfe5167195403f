"""Progress in a log file: lines that can be read, and none of a job that is done at once."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

from densevit.utils import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 80)


@pytest.fixture
def count_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[io.StringIO, float], str]:
    """What counting to three writes to stderr, where each takes some seconds of a clock of our own."""

    def counted(stderr: io.StringIO, seconds: float) -> str:
        clock = [0.0]
        monkeypatch.setattr("sys.stderr", stderr)
        monkeypatch.setattr(output.tqdm, "monitor_interval", 0)
        bar = output.tqdm(range(3), desc="evaluate", unit="image", delay=1)
        bar._time = lambda: clock[0]
        bar.start_t = bar.last_print_t = 0.0
        for _ in bar:
            clock[0] += seconds
        return stderr.getvalue()

    return counted


def test_a_log_file_gets_whole_lines(count_to: Callable[[io.StringIO, float], str]) -> None:
    lines = count_to(io.StringIO(), 12).splitlines()
    assert [line.split("| ")[0] for line in lines[:3]] == ["evaluate:  33%", "evaluate:  67%", "evaluate: 100%"]
    assert "2/3 [00:24<00:1" in lines[1] and lines[1].endswith("12.00s/image]")


def test_what_is_done_at_once_writes_nothing_into_a_log(count_to: Callable[[io.StringIO, float], str]) -> None:
    assert count_to(io.StringIO(), 2) == ""


def test_a_terminal_gets_a_bar(count_to: Callable[[io.StringIO, float], str]) -> None:
    assert "\revaluate:  67%|" in count_to(Terminal(), 2)


def test_a_terminal_without_width_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    with open(slave, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert output.terminal_width() == 0 and not output.shows_bars()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
        assert output.terminal_width() == 70 and output.shows_bars()
    os.close(master)


def test_a_bar_leaves_the_start_method_of_processes_to_the_program() -> None:
    """tqdm's own lock sets it, and from Python 3.14 on starts a process that outlives ours."""
    code = "import multiprocessing; from densevit.utils.output import tqdm; list(tqdm(range(2)))\n"
    code += "multiprocessing.set_start_method('spawn')"
    subprocess.run([sys.executable, "-c", code], check=True)
