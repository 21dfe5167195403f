"""Two processes (gloo) train what one process trains."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_trainer import some_run

from densevit.engine.distributed import check_processes
from densevit.errors import ConfigError
from densevit.utils import process_group as processes
from densevit.utils.device import device_of_process
from densevit.utils.process_group import ProcessGroup, process_group


def be_process(monkeypatch: pytest.MonkeyPatch, rank: int, count: int) -> None:
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_restarted_processes_do_not_read_the_addresses_of_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, seen = torch.distributed.HashStore(), []
    monkeypatch.setattr(processes, "rendezvous", lambda *args, **kwargs: iter([(shared, 0, 2)]))
    monkeypatch.setattr(processes.dist, "init_process_group", lambda *args, store, **kwargs: seen.append(store))
    monkeypatch.setattr(processes.dist, "new_group", lambda **kwargs: None)
    monkeypatch.setattr(processes.dist, "destroy_process_group", lambda: None)
    for attempt in ("0", "1"):
        be_process(monkeypatch, 0, 2)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        with process_group("cpu"):
            seen[-1].set(f"address of attempt {attempt}", "127.0.0.1:1")
    first, second = seen
    assert first.check(["address of attempt 0"]) and second.check(["address of attempt 1"])
    assert not second.check(["address of attempt 0"])


def test_a_process_among_several_touches_no_gpu_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor on the first GPU, however small, costs each process half a gigabyte of it."""
    touched, groups = [], []
    be_process(monkeypatch, 3, 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", touched.append)
    monkeypatch.setattr(torch, "empty", lambda *size, device: touched.append(device))
    monkeypatch.setattr(processes, "rendezvous", lambda *args, **kwargs: iter([(torch.distributed.HashStore(), 3, 4)]))
    monkeypatch.setattr(processes.dist, "init_process_group", lambda *args, **kwargs: groups.append(kwargs))
    monkeypatch.setattr(processes.dist, "new_group", lambda **kwargs: groups.append(kwargs))
    monkeypatch.setattr(processes.dist, "destroy_process_group", lambda: None)
    for device in ("auto", "cuda"):
        with process_group(device) as world:
            assert world.device == torch.device("cuda:3")
    assert set(touched) == {torch.device("cuda:3")}
    assert groups[0]["device_id"] == torch.device("cuda:3")
    # While one process saves a large model, the others wait for its objects, not in a collective of NCCL.
    assert groups[1]["backend"] == "gloo" and groups[1]["timeout"] > 10 * groups[0]["timeout"]


def test_cuda_graphs_on_a_cpu_are_refused(tmp_path: Path) -> None:
    run, world = some_run(tmp_path, compile="max-autotune"), ProcessGroup(torch.device("cpu"))
    with pytest.raises(ConfigError, match="compile: max-autotune records CUDA graphs, and the device is cpu; take"):
        check_processes(world, run, "fp32")
    check_processes(world, replace(run, compile="max-autotune-no-cudagraphs"), "fp32")


def test_one_gpu_for_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    be_process(monkeypatch, 0, 2)
    refused = pytest.raises(ConfigError, match="'cuda:1' is one GPU, where the 2 processes.*CUDA_VISIBLE_DEVICES")
    with refused, process_group("cuda:1"):
        pass


def test_a_task_of_slurm_that_sees_one_gpu_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert device_of_process("cuda", 3, 4) == "cuda:3"
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert device_of_process("cuda", 3, 4) == "cuda:0"
