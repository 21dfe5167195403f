"""Signals at every stage of a run: what was done is saved, and nothing is half done."""

import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import ForkServer
from small import small_config

from densevit.engine.logger import read_csv
from densevit.engine.monitors import COLUMNS as SPEED
from densevit.weights import checkpoint

STOPPED = 75

slow = partial(pytest.param, marks=pytest.mark.slow)


def newest(run: Path) -> Path:
    return checkpoint.steps(run / "checkpoints")[-1]


def whole(run: Path) -> bool:
    """No temporary is left behind, and every checkpoint verifies."""
    left = [path for path in run.rglob("*") if ".densevit-" in path.name]
    for path in checkpoint.steps(run / "checkpoints"):
        checkpoint.verify(path)
    return not left


@pytest.mark.slow
def test_sigterm_to_the_whole_group_at_ten_random_times_saves_the_step_and_ends_with_75(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    config = small_config(tmp_path)
    draw = random.Random(0)
    for trial in range(10):
        run = tmp_path / str(trial)
        child = fork_server.start("train", config, f"output={run}", "steps=2000", "data.val=null", "data.workers=2")
        while len(read_csv(run / "train.csv")) < 1:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.3))
        child.signal(signal.SIGTERM, group=True)
        assert child.wait() == STOPPED, child.err.read_text()
        step = checkpoint.step_of(newest(run))
        assert step == read_csv(run / "train.csv")[-1]["step"]
        assert f"stopped and saved at step {step} of 2000; continue with --resume." in child.err.read_text()
        assert step < 2000 and whole(run)


# Stochastic depth draws from torch's generator in every step; fp16 adds the scale of the loss.
RANDOM = ["model.encoder.drop_path=0.3", "grad_accum_steps=2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message", "saved", "words"),
    [
        slow("while_building", "stopped before the next step; there is nothing to save.", None, []),
        ("at_step:1", "stopped and saved at step 1 of 8", 1, []),
        slow("at_step:3", "stopped and saved at step 3 of 8", 3, [*RANDOM, "precision=fp16", "data.workers=2"]),
        slow("while_validating", "stopped and saved at step 4 of 8", 4, []),
        slow("while_saving", "stopped and saved at step 5 of 8", 5, []),
    ],
    ids=["building", "first step", "fp16", "validating", "saving"],
)
def test_sigterm_at_any_stage_of_training_loses_nothing(
    tmp_path: Path, fork_server: ForkServer, fault: str, message: str, saved: int | None, words: list[str]
) -> None:
    config, run, words = small_config(tmp_path), tmp_path / "run", ["ema=0.9", *words]
    text = fork_server.run("train", config, *words, fault=fault, code=STOPPED)
    assert message in text
    assert [checkpoint.step_of(path) for path in checkpoint.steps(run / "checkpoints")][-1:] == (
        [saved] if saved else []
    )
    assert whole(run)
    fork_server.run("train", config, *words, "--resume")
    fork_server.run("train", config, *words, f"output={tmp_path / 'whole'}")
    assert_same_run(run, tmp_path / "whole")


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, resume state and logs, bit for bit, but for the seconds that it took."""
    weights = [checkpoint.read(newest(run))[0] for run in (one, other)]
    assert [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])] == []
    states = [checkpoint.read_state(newest(run)) for run in (one, other)]
    assert [name for name, _ in differing(*states)] == []
    assert (one / "checkpoints/best").readlink() == (other / "checkpoints/best").readlink()
    for name in ("train.csv", "val.csv"):
        rows = [
            [{k: v for k, v in row.items() if k not in {"seconds", *SPEED}} for row in read_csv(run / name)]
            for run in (one, other)
        ]
        assert rows[0] == rows[1]


def differing(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of two trees that are not equal, but for the seconds."""
    if isinstance(one, dict | list | tuple) and type(one) is type(other) and len(one) == len(other):
        pairs = one.items() if isinstance(one, dict) else enumerate(one)
        for key, value in pairs:
            yield from differing(value, other[key], f"{path}.{key}")
    elif not (torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other) and path != ".seconds":
        yield path, (one, other)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_with_any_number_of_workers(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_config(tmp_path)
    runs = {"first": [], "again": [], "one": ["data.workers=1"], "four": ["data.workers=4"], "other seed": ["seed=1"]}
    for name, words in runs.items():
        fork_server.run("train", config, "ema=0.9", *RANDOM, *words, f"output={tmp_path / name}")
    for name in ("again", "one", "four"):
        assert_same_run(tmp_path / name, tmp_path / "first")
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "other seed", tmp_path / "first")


def test_sigterm_during_a_scan_of_the_data_ends_it_with_75(tmp_path: Path, fork_server: ForkServer) -> None:
    small_config(tmp_path)
    words = ["check-data", "--data", "folder", "--root", tmp_path / "data", "--data-options", "depth_scale=1000"]
    words += ["--output", tmp_path / "report", "--threads", 1]
    text = fork_server.run(*words, fault="while_scanning", code=STOPPED)
    assert "of 6 samples; their statistics are cached" in text
    assert not (tmp_path / "report").exists()


def test_sigterm_during_prediction_leaves_whole_maps(tmp_path: Path, fork_server: ForkServer, small_run: Path) -> None:
    words = ["predict", small_run / "run", small_run / "data/images", "--output", tmp_path / "maps", "--workers", 1]
    text = fork_server.run(*words, fault="while_predicting", code=STOPPED)
    made = len(list((tmp_path / "maps").glob("*.png")))
    assert 1 <= made < 6
    assert f"stopped after {made} of 6 images, all of them whole; continue with --resume" in text
    assert not list((tmp_path / "maps").rglob("*densevit-tmp"))


def test_sigterm_during_scoring_writes_no_report(tmp_path: Path, fork_server: ForkServer, small_run: Path) -> None:
    words = ["eval", "--task", "depth", small_run / "run", "--data", "folder", "--root", small_run / "data"]
    words += ["--data-options", "depth_scale=1000"]
    text = fork_server.run(*words, "--output", tmp_path / "report", fault="while_predicting", code=STOPPED)
    assert "nothing is written" in text
    assert not (tmp_path / "report").exists()


@pytest.mark.slow
def test_a_second_signal_ends_at_once_even_what_python_cannot_interrupt(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    child = fork_server.start("train", small_config(tmp_path), fault="deaf")
    child.wait_for("deaf")
    child.signal(signal.SIGINT)
    time.sleep(1.7)  # signals that come sooner count as the same request
    child.signal(signal.SIGINT)
    assert child.wait() == 128 + signal.SIGINT  # long before it would be done with hashing
    assert whole(tmp_path / "run")


@pytest.mark.slow
def test_sigterm_to_one_of_two_processes_stops_both_at_the_same_step(tmp_path: Path, fork_server: ForkServer) -> None:
    config, run = small_config(tmp_path), tmp_path / "run"
    children = fork_server.together(2, "train", config, "steps=5000", "data.val=null")
    while len(read_csv(run / "train.csv")) < 2:
        time.sleep(0.005)
    children[1].signal(signal.SIGTERM)
    assert [child.wait() for child in children] == [STOPPED, STOPPED]
    steps = checkpoint.steps(run / "checkpoints")
    assert len(steps) == 1
    said = f"stopped and saved at step {checkpoint.step_of(steps[0])} of 5000"
    assert all(said in child.err.read_text() for child in children)


@pytest.mark.slow
def test_a_stop_in_the_validation_of_one_of_two_processes_is_taken_up_there(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    config, run = small_config(tmp_path), tmp_path / "run"
    fork_server.finish(2, "train", config, faults={1: "while_validating"}, code=STOPPED)
    assert [checkpoint.step_of(path) for path in checkpoint.steps(run / "checkpoints")] == [4]
    fork_server.finish(2, "train", config, "--resume")
    assert [row["step"] for row in read_csv(run / "val.csv")] == [4, 8]
