"""What other systems lack is not called there; processes of this one are told dead from alive."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from densevit.data.loading import workers
from densevit.utils import atomic_io, process


def test_a_process_that_has_ended_does_not_exist_even_before_its_parent_knows() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.process_exists(os.getpid())
    with child:
        child.stdout.read()  # type: ignore[union-attr]
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not process.process_exists(child.pid)  # a zombie
    assert not process.process_exists(child.pid)


def test_on_windows_no_signal_is_sent_and_no_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = SimpleNamespace(name="nt")  # without `kill`, `open` and `fsync`
    monkeypatch.setattr(process, "os", windows)
    monkeypatch.setattr(atomic_io, "os", windows)
    assert process.process_exists(1) and process.machine_id() == ""
    atomic_io._fsync(tmp_path)


def test_workers_start_where_signals_cannot_be_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "pthread_sigmask")
    monkeypatch.delattr(signal, "SIGCHLD")
    with workers._block_signals(), workers._keep_sigchld_handler():
        pass
