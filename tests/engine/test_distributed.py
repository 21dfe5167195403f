"""Two processes (gloo) train what one process trains."""

from pathlib import Path

import pytest
import torch
from forked import ForkServer
from small import small_config

from densevit.engine import distributed
from densevit.engine.logger import read_csv
from densevit.errors import ConfigError
from densevit.utils.device import device_of_process
from densevit.weights import checkpoint


@pytest.mark.slow
def test_two_processes_end_with_the_weights_and_scores_of_one(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_config(tmp_path)
    for processes in (1, 2):
        children = fork_server.together(processes, "train", config, f"output={tmp_path / str(processes)}")
        assert [child.wait() for child in children] == [0] * processes, children[0].err.read_text()
    weights = [checkpoint.read(tmp_path / n / "checkpoints/last")[0] for n in "12"]
    for name, one in weights[0].items():
        assert torch.allclose(one, weights[1][name], atol=2e-6), name
    logs = [read_csv(tmp_path / n / "val.csv") for n in "12"]
    assert [row["abs_rel"] for row in logs[0]] == pytest.approx([row["abs_rel"] for row in logs[1]], rel=1e-4)
    assert [row["loss"] for row in read_csv(tmp_path / "1/train.csv")] == pytest.approx(
        [row["loss"] for row in read_csv(tmp_path / "2/train.csv")], rel=1e-4
    )


@pytest.mark.slow
def test_a_batch_that_cannot_be_divided_is_refused_before_any_work(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_config(tmp_path)
    children = fork_server.together(2, "train", config, f"output={tmp_path / 'x'}", "batch_size=3")
    assert [child.wait() for child in children] == [2, 2]
    assert all("batch_size" in child.err.read_text() for child in children)
    assert not (tmp_path / "x").exists()


def test_restarted_processes_do_not_read_the_addresses_of_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, seen = torch.distributed.HashStore(), []
    monkeypatch.setattr(distributed, "rendezvous", lambda *args, **kwargs: iter([(shared, 0, 2)]))
    monkeypatch.setattr(distributed.dist, "init_process_group", lambda *args, store, **kwargs: seen.append(store))
    monkeypatch.setattr(distributed.dist, "new_group", lambda **kwargs: None)
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


def test_a_process_among_several_touches_no_gpu_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor on the first GPU, however small, costs each process half a gigabyte of it."""
    touched, groups = [], []
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", touched.append)
    monkeypatch.setattr(torch, "empty", lambda *size, device: touched.append(device))
    monkeypatch.setattr(
        distributed, "rendezvous", lambda *args, **kwargs: iter([(torch.distributed.HashStore(), 3, 4)])
    )
    monkeypatch.setattr(distributed.dist, "init_process_group", lambda *args, **kwargs: groups.append(kwargs))
    monkeypatch.setattr(distributed.dist, "new_group", lambda **kwargs: groups.append(kwargs))
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    for device in ("auto", "cuda"):
        with distributed.process_group(device) as world:
            assert world.device == torch.device("cuda:3")
    assert set(touched) == {torch.device("cuda:3")}
    assert groups[0]["device_id"] == torch.device("cuda:3")
    # While one process saves a large model, the others wait for its objects, not in a collective of NCCL.
    assert groups[1]["backend"] == "gloo" and groups[1]["timeout"] > 10 * groups[0]["timeout"]


def test_one_gpu_for_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    refused = pytest.raises(ConfigError, match="'cuda:1' is one GPU, where the 2 processes.*CUDA_VISIBLE_DEVICES")
    with refused, distributed.process_group("cuda:1"):
        pass


def test_a_task_of_slurm_that_sees_one_gpu_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert device_of_process("cuda", 3, 4) == "cuda:3"
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert device_of_process("cuda", 3, 4) == "cuda:0"
