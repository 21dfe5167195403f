"""Two processes under torchrun (gloo) train what one process trains."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small import small_config

from densevit.engine import distributed
from densevit.engine.logger import read_csv
from densevit.weights import checkpoint

LAUNCH = ["-m", "torch.distributed.run", "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
TRAIN = str(Path(__file__).parents[1] / "tools/train.py")


def train(config: Path, processes: int, *overrides: str) -> subprocess.CompletedProcess[str]:
    launch = [*LAUNCH, f"--nproc-per-node={processes}"] if processes > 1 else []
    return subprocess.run(
        [sys.executable, *launch, TRAIN, str(config), *overrides],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_two_processes_end_with_the_weights_and_scores_of_one(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    for processes in (1, 2):
        done = train(config, processes, f"output={tmp_path / str(processes)}")
        assert done.returncode == 0, done.stderr
    weights = [checkpoint.read(tmp_path / n / "checkpoints/last")[0] for n in "12"]
    for name, one in weights[0].items():
        assert torch.allclose(one, weights[1][name], atol=2e-6), name
    logs = [read_csv(tmp_path / n / "val.csv") for n in "12"]
    assert [row["abs_rel"] for row in logs[0]] == pytest.approx([row["abs_rel"] for row in logs[1]], rel=1e-4)
    assert [row["loss"] for row in read_csv(tmp_path / "1/train.csv")] == pytest.approx(
        [row["loss"] for row in read_csv(tmp_path / "2/train.csv")], rel=1e-4
    )


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    whole = train(config, 1, f"output={tmp_path / 'whole'}")
    assert whole.returncode == 0, whole.stderr
    first = train(config, 2, f"output={tmp_path / 'parts'}", "steps=4", "schedule.type=constant", "schedule.warmup=0")
    assert first.returncode == 0, first.stderr
    second = train(config, 1, f"output={tmp_path / 'parts'}", "--resume")
    assert second.returncode == 0, second.stderr
    steps = [checkpoint.step_of(path) for path in checkpoint.steps(tmp_path / "parts/checkpoints")]
    assert steps[-1] == 8
    weights = [checkpoint.read(tmp_path / name / "checkpoints/last")[0] for name in ("whole", "parts")]
    assert all(torch.allclose(one, weights[1][name], atol=2e-6) for name, one in weights[0].items())


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_refused_before_any_work(tmp_path: Path) -> None:
    done = train(small_config(tmp_path), 2, f"output={tmp_path / 'x'}", "batch_size=3")
    assert done.returncode != 0
    assert "batch_size" in done.stderr
    assert not (tmp_path / "x/train.csv").exists()


def test_restarted_processes_do_not_read_the_addresses_of_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, seen = torch.distributed.HashStore(), []
    monkeypatch.setattr(distributed, "rendezvous", lambda *args, **kwargs: iter([(shared, 0, 2)]))
    monkeypatch.setattr(distributed.dist, "init_process_group", lambda *args, store, **kwargs: seen.append(store))
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    for attempt in ("0", "1"):
        for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        with distributed.process_group("cpu"):
            seen[-1].set(f"address of attempt {attempt}", "127.0.0.1:1")
    first, second = seen
    assert first.check(["address of attempt 0"]) and second.check(["address of attempt 1"])
    assert not second.check(["address of attempt 0"])
