"""One owner at a time, on one machine and on several that share a disk; a dead owner's lock is taken over."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from densevit.errors import ConfigError, Preempted, StorageError
from densevit.utils import lock as locks
from densevit.utils.lock import NAME, FolderLock, Owner
from densevit.utils.process import interruptible


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT", 0.05)
    monkeypatch.setattr(locks, "STALE", 0.4)


@contextmanager
def held(folder: Path) -> Iterator[FolderLock]:
    lock = FolderLock(folder, f"output: {folder}")
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


def left_by(folder: Path, **changes: object) -> Owner:
    """A lock file as another process left it."""
    folder.mkdir(exist_ok=True)
    owner = replace(FolderLock(folder, "").owner, key="other", **changes)  # type: ignore[arg-type]
    (folder / NAME).write_text(json.dumps(asdict(owner)))
    return owner


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_living_owner_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    with held(tmp_path) as first:
        with pytest.raises(ConfigError, match=f"in use by another run .host .*, process {os.getpid()}, started 20"):
            FolderLock(tmp_path, "output: x").acquire()
        assert json.loads((tmp_path / NAME).read_text()) == asdict(first.owner)
    assert list(tmp_path.iterdir()) == []


def test_of_many_at_once_one_gets_the_lock_also_when_it_is_a_dead_ones(tmp_path: Path) -> None:
    for turn in range(5):
        left_by(tmp_path, pid=dead_process())
        taken: list[FolderLock] = []
        barrier = threading.Barrier(8)

        def try_it(taken: list[FolderLock] = taken, barrier: threading.Barrier = barrier) -> None:
            lock = FolderLock(tmp_path, "output: x")
            barrier.wait()
            try:
                lock.acquire()
            except ConfigError:
                return
            taken.append(lock)

        threads = [threading.Thread(target=try_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1, turn
        assert json.loads((tmp_path / NAME).read_text()) == asdict(taken[0].owner)
        taken[0].release()
        assert list(tmp_path.iterdir()) == []


def test_a_lock_that_changed_hands_meanwhile_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_by(tmp_path, pid=dead_process())
    lock, stale = FolderLock(tmp_path, "output: x"), FolderLock._is_stale
    faster: list[Owner] = []

    def stale_then_taken(self: FolderLock, owner: Owner | None) -> bool:
        verdict = stale(self, owner)
        if not faster:  # another process removes the dead one's lock and takes its own, between our look and our hand
            faster.append(left_by(tmp_path, host="faster"))
        return verdict

    monkeypatch.setattr(FolderLock, "_is_stale", stale_then_taken)
    with pytest.raises(ConfigError, match="host faster"):
        lock.acquire()
    assert json.loads((tmp_path / NAME).read_text()) == asdict(faster[0])


@pytest.mark.parametrize("at_our_look", ["gone", "not written out"])
def test_a_lock_that_is_being_written_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_our_look: str
) -> None:
    """Two empty files, or none and an empty one, are not the same lock."""
    path, create, left = tmp_path / NAME, FolderLock._create, ["released", "created"]
    if at_our_look == "not written out":
        left.remove("released")
        path.touch()
        os.utime(path, (1, 1))

    def create_beside_another(self: FolderLock, at: Path) -> bool:
        if "released" in left:  # between our attempt and our look
            left.remove("released")
            return False
        if "created" in left and (at.name != NAME or not path.exists()):  # and not written yet
            left.remove("created")
            path.unlink(missing_ok=True)
            path.touch()
        return create(self, at)

    monkeypatch.setattr(FolderLock, "_create", create_beside_another)
    monkeypatch.setattr(FolderLock, "_is_stale", lambda self, owner: self._age(path) > 10)
    with pytest.raises(ConfigError, match="in use by another run .not yet known"):
        FolderLock(tmp_path, "output: x").acquire()
    assert path.exists()


def test_one_that_takes_over_is_not_disturbed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_by(tmp_path, pid=dead_process())
    guard, age, create = tmp_path / f"{NAME}.takeover", FolderLock._age, FolderLock._create
    attempts: list[bool] = []

    def age_then_taken(self: FolderLock, path: Path) -> float:
        verdict = age(self, path)
        if path == guard and not attempts:  # another process begins to take over, right after our look
            guard.touch()
        return verdict

    def create_and_count(self: FolderLock, path: Path) -> bool:
        if path == guard:
            attempts.append(created := create(self, path))
            guard.unlink(missing_ok=not created)  # and is done with it
            return created
        return create(self, path)

    monkeypatch.setattr(FolderLock, "_age", age_then_taken)
    monkeypatch.setattr(FolderLock, "_create", create_and_count)
    with held(tmp_path):
        assert attempts == [False, True]


@pytest.mark.parametrize("number", ["dead", "used again"])
def test_a_lock_of_a_process_that_is_gone_is_taken_at_once(
    tmp_path: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"pid": dead_process()} if number == "dead" else {"process_start": "1"}
    left_by(tmp_path, **changes)
    monkeypatch.setattr(time, "sleep", pytest.fail)  # as for a lock of another machine
    with held(tmp_path) as lock:
        assert lock._read() == lock.owner


def test_a_lock_of_another_machine_is_taken_when_its_heartbeat_has_stopped(tmp_path: Path, fast: None) -> None:
    left_by(tmp_path, machine="another", pid=1)
    with held(tmp_path) as lock:
        assert lock._read() == lock.owner


def test_a_lock_of_another_machine_with_a_heartbeat_is_respected(tmp_path: Path, fast: None) -> None:
    with held(tmp_path / "run") as lock:
        lock.owner = replace(lock.owner, machine="another", host="node7")
        lock.path.write_text(json.dumps(asdict(lock.owner)))
        with pytest.raises(ConfigError, match="host node7"):
            FolderLock(tmp_path / "run", "output: x").acquire()


def test_an_owner_that_stood_still_learns_that_its_lock_is_gone(tmp_path: Path) -> None:
    with held(tmp_path) as lock:
        lock.check()
        left_by(tmp_path, host="node7")
        with pytest.raises(StorageError, match="taken over by another run .host node7"):
            lock.check()
    assert json.loads((tmp_path / NAME).read_text())["host"] == "node7"  # and it does not remove the other's


def test_folders_that_were_made_for_nothing_are_removed(tmp_path: Path) -> None:
    with held(tmp_path / "a/b"):
        assert (tmp_path / "a/b" / NAME).exists()
    assert list(tmp_path.iterdir()) == []
    with held(tmp_path / "a/b"):
        (tmp_path / "a/b/train.csv").touch()
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["train.csv"]


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to("nowhere")
    with pytest.raises(ConfigError, match="lock is a link"):
        FolderLock(tmp_path, "output: x").acquire()


@pytest.mark.parametrize(
    "pid", ["many", True, *(pytest.param(pid, marks=pytest.mark.slow) for pid in (None, 10**30, -1))]
)
def test_a_lock_with_a_damaged_process_number_goes_stale_by_its_age(tmp_path: Path, pid: object, fast: None) -> None:
    tree = asdict(left_by(tmp_path))
    (tmp_path / NAME).write_text(json.dumps({**tree, "pid": pid}))
    with held(tmp_path) as lock:
        assert lock._read() == lock.owner


def test_a_copy_of_a_folder_is_free_although_the_original_is_in_use_and_a_renamed_one_is_not(tmp_path: Path) -> None:
    with held(tmp_path / "run") as lock:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        with held(tmp_path / "copy") as other:
            assert other._read() == other.owner
        (tmp_path / "run").rename(tmp_path / "renamed")
        with pytest.raises(ConfigError, match="in use by another run"):
            FolderLock(tmp_path / "renamed", "output: x").acquire()
        (tmp_path / "renamed").rename(tmp_path / "run")
        lock.check()


def test_a_lock_that_was_removed_is_written_again(tmp_path: Path) -> None:
    with held(tmp_path) as lock:
        lock.path.unlink()
        lock.check()
        with pytest.raises(ConfigError, match="in use by another run"):
            FolderLock(tmp_path, "output: x").acquire()


def test_who_loses_the_lock_stops_at_the_next_heartbeat(tmp_path: Path, fast: None) -> None:
    with interruptible() as stop, held(tmp_path):
        left_by(tmp_path, host="node7")
        assert stop.wait(5)


def test_waiting_for_a_lock_ends_at_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FolderLock, "_create", lambda self, path: False)
    with interruptible() as stop, pytest.raises(Preempted):
        stop.set()
        FolderLock(tmp_path, "output: x").acquire()
