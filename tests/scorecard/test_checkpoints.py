"""What happens to checkpoints when the process dies, the disk fills, bytes flip, or a file is not what it says."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from forked import ForkServer
from scorecard.killing import CARD, STATE, WEIGHTS
from small import small_config

import densevit
from densevit.cli.main import main
from densevit.errors import DensevitError
from densevit.utils import atomic_io
from densevit.weights import checkpoint

HERE = Path(__file__).parent
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(params=["same disk", "another"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """On the disk of temporary files, and on another file system."""
    if request.param == "same disk":
        yield tmp_path / "checkpoints"
        return
    if not os.access(SHARED_MEMORY, os.W_OK):
        pytest.skip("no second file system here")
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as other:
        yield Path(other) / "checkpoints"


@pytest.mark.slow
def test_twenty_kills_in_the_middle_of_saving_lose_nothing(folder: Path) -> None:
    command = [sys.executable, str(HERE / "killing.py"), str(folder), "20", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "held 20\n", done.stderr


def test_a_kill_between_the_two_renames_of_a_replacement_is_mended(tmp_path: Path) -> None:
    step = tmp_path / "step-00000001"
    checkpoint.write(step, WEIGHTS, CARD, "", STATE, checkpoint.Manifest(step=1, samples=1))
    dead = subprocess.Popen(["true"])
    dead.wait()
    step.rename(tmp_path / f".{step.name}.{dead.pid}.0123abcd{atomic_io.SET_ASIDE}")
    atomic_io.remove_stale_temporaries(tmp_path)
    assert checkpoint.verify(step).step == 1
    assert [path.name for path in tmp_path.iterdir()] == [step.name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Path:
    """A run of two saves, and its config."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["steps=4", "save_every=2", "data.val=null", "ema=0.9"]
    fork_server.run("train", small_config(folder), *words)
    return folder


def test_a_full_disk_keeps_what_was_saved_and_names_path_and_bytes(
    tmp_path: Path, trained: Path, fork_server: ForkServer
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run", symlinks=True)
    words = [f"output={tmp_path / 'run'}", "data.val=null", "ema=0.9", "save_every=2", "--resume"]
    text = fork_server.run("train", trained / "small.yaml", *words, fault="full_disk:100000", code=2)
    assert f"{tmp_path / 'run/checkpoints'}/" in text
    assert "no room" in text and "bytes free" in text
    steps = checkpoint.steps(tmp_path / "run/checkpoints")
    assert [checkpoint.verify(path).step for path in steps] == [2, 4]
    assert not list((tmp_path / "run").rglob("*densevit-tmp"))


def test_too_small_a_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(DensevitError, match=r"no room for 5,000,000 bytes \(1,000 bytes free\)"):
        checkpoint.write(tmp_path / "step-00000001", WEIGHTS, CARD, "", STATE, checkpoint.Manifest(step=1, samples=1))
    assert list(tmp_path.iterdir()) == []


def truncated(step: Path) -> None:
    (step / checkpoint.STATE).write_bytes((step / checkpoint.STATE).read_bytes()[:-7])


def lacking(step: Path) -> None:
    (step / checkpoint.CONFIG).unlink()


def flipped(step: Path) -> None:
    content = bytearray((step / checkpoint.WEIGHTS).read_bytes())
    content[-1] ^= 1
    (step / checkpoint.WEIGHTS).write_bytes(bytes(content))


def empty(step: Path) -> None:
    for path in step.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "damage", [truncated, flipped, *(pytest.param(damage, marks=pytest.mark.slow) for damage in (lacking, empty))]
)
def test_resume_takes_the_previous_checkpoint_and_says_so_but_a_named_one_is_that_or_an_error(
    tmp_path: Path, trained: Path, fork_server: ForkServer, damage: Callable[[Path], None]
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run", symlinks=True)
    newest = tmp_path / "run/checkpoints/step-00000004"
    damage(newest)
    words = ["train", trained / "small.yaml", f"output={tmp_path / 'run'}", "steps=4", "data.val=null", "ema=0.9"]
    text = fork_server.run(*words, "--resume", newest, code=2)
    assert str(newest) in text, text
    text = fork_server.run(*words, "--resume")
    warnings = [line for line in text.splitlines() if line.startswith("warning") and "step-" in line]
    assert len(warnings) == 1 and str(newest) in warnings[0] and "going on from step-00000002" in warnings[0]
    assert checkpoint.verify(newest).step == 4  # trained and saved once more


def test_going_back_to_an_older_checkpoint_needs_the_later_ones_moved_away(
    tmp_path: Path, trained: Path, fork_server: ForkServer
) -> None:
    older = trained / "run/checkpoints/step-00000002"
    words = ["train", trained / "small.yaml", "steps=4", "data.val=null", "ema=0.9", "--resume", older]
    text = fork_server.run(*words, code=2)
    assert "holds step-00000004, further than step-00000002" in text, text
    fork_server.run(*words, f"output={tmp_path / 'other'}")


def test_a_run_without_a_whole_checkpoint_is_not_silently_started_anew(
    tmp_path: Path, trained: Path, fork_server: ForkServer
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run", symlinks=True)
    for step in checkpoint.steps(tmp_path / "run/checkpoints"):
        truncated(step)
    text = fork_server.run("train", trained / "small.yaml", f"output={tmp_path / 'run'}", "--resume", code=2)
    assert "none of its 2 checkpoints is whole" in text, text


@pytest.mark.slow
def test_a_save_that_fails_on_the_first_process_ends_all(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_config(tmp_path)
    children = fork_server.finish(2, "train", config, faults={0: "failing_save"}, code=2)
    assert all("/runs: no room." in child.err.read_text() for child in children)


class Payload:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch sentinel",)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".ckpt", ".npz"])
@pytest.mark.parametrize("entry", ["resume", "init", "eval", "predict", "export"])
def test_a_pickle_that_would_run_code_is_refused_wherever_it_comes_in(
    here: Path, trained: Path, capfd, entry: str, suffix: str
) -> None:
    bad = here / f"bad{suffix}"
    if suffix == ".npz":
        import numpy as np

        np.savez(bad, w=np.array([Payload()], dtype=object))
    else:
        torch.save({"state_dict": {"w": Payload()}}, bad)
    config, output = str(trained / "small.yaml"), f"output={here / 'run'}"
    words = {
        "resume": ["train", config, output, "--resume", str(bad)],
        "init": ["train", config, output, f"model.init_from={bad}"],
        "eval": ["eval", "--task", "depth", str(bad), "--data", "folder", "--root", str(trained / "data")],
        "export": ["predict", str(bad), str(trained / "data/images"), "--output", str(here / "maps")],
    }
    if entry == "predict":
        with pytest.raises(DensevitError, match=str(bad)) as refused:
            densevit.load(bad)
        said = str(refused.value)
    else:
        assert main(words[entry]) == 2
        said = capfd.readouterr().err
    assert str(bad.parent) in said and "Traceback" not in said  # of what is resumed, the folder is asked for
    if suffix != ".npz" and entry in ("eval", "predict", "export"):
        assert "posix.system" in said  # the others take only folders of ours, and read no pickle at all
    assert not list(here.rglob("sentinel"))


def test_a_pickle_inside_a_checkpoint_of_ours_is_refused_although_its_sum_is_right(
    tmp_path: Path, trained: Path, fork_server: ForkServer
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run", symlinks=True)
    step = tmp_path / "run/checkpoints/step-00000004"
    manifest = checkpoint.verify(step)
    torch.save({"optimizer": Payload()}, step / checkpoint.STATE)
    hashes = {**manifest.files, checkpoint.STATE: atomic_io.sha256(step / checkpoint.STATE)}
    (step / checkpoint.MANIFEST).write_text(checkpoint.with_checksum({**asdict(manifest), "files": hashes}))
    words = ["train", trained / "small.yaml", f"output={tmp_path / 'run'}", "--resume", "ema=0.9"]
    text = fork_server.run(*words, code=2)
    assert "posix.system" in text, text
    assert not Path("sentinel").exists()
