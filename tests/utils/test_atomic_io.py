import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from densevit.errors import StorageError
from densevit.utils import atomic_io


def test_a_file_appears_whole_with_its_hash(tmp_path: Path) -> None:
    digest = atomic_io.atomic_write(tmp_path / "a.bin", lambda file: (file.write(b"one"), file.write(b"two")))
    assert (tmp_path / "a.bin").read_bytes() == b"onetwo"
    assert digest == hashlib.sha256(b"onetwo").hexdigest() == atomic_io.sha256(tmp_path / "a.bin")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_failure_leaves_what_stood_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(file) -> None:
        file.write(b"half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        atomic_io.atomic_write(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_named_with_path_and_bytes_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    code = (
        "import resource, signal, sys; from densevit.utils import atomic_io as files\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"files.atomic_write({str(path)!r}, lambda f: f.write(b'x' * 100_000))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StorageError" in done.stderr
    assert f"{path}: no room" in done.stderr
    assert "bytes free" in done.stderr
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="its folder does not exist"):
        atomic_io.write_text(tmp_path / "no" / "a.txt", "x")


def test_a_folder_that_cannot_be_made_is_told_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(StorageError, match=r"cannot be made \(.*file is no folder\)"):
            atomic_io.check_can_create(path)
    atomic_io.check_can_create(tmp_path / "new/deep")
    assert not (tmp_path / "new").exists()


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_io.atomic_folder(tmp_path / "step") as folder:
        (folder / "a").write_text("x")
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == []
    with atomic_io.atomic_folder(tmp_path / "step") as folder:
        (folder / "a").write_text("x")
    assert (tmp_path / "step" / "a").read_text() == "x"


def test_sweep_removes_what_dead_processes_left_and_only_that(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    gone = tmp_path / f".a.bin.{dead.pid}.0123abcd{atomic_io.SUFFIX}"
    gone.write_text("x")
    ours = tmp_path / f".b.bin.{os.getpid()}.0123abcd{atomic_io.SUFFIX}"
    ours.write_text("x")
    assert atomic_io.remove_stale_temporaries(tmp_path) == [gone]
    assert [p.name for p in tmp_path.iterdir()] == [ours.name]


def test_a_folder_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with atomic_io.atomic_folder(tmp_path / "step", replace=True) as folder:
            (folder / text).write_text(text)
    assert [path.name for path in (tmp_path / "step").iterdir()] == ["new"]
    with pytest.raises(StorageError, match="step"), atomic_io.atomic_folder(tmp_path / "step") as folder:
        (folder / "other").write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    assert [path.name for path in (tmp_path / "step").iterdir()] == ["new"]


def test_new_files_have_the_permissions_of_ordinary_ones(tmp_path: Path) -> None:
    atomic_io.write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode
