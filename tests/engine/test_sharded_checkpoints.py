"""Checkpoints of which every process writes the tensors that it holds, while training goes on."""

import json
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked import ForkServer
from small import small_config
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import densevit
from densevit.cli.main import main
from densevit.config.schema import Optim
from densevit.engine import distributed
from densevit.engine.optim import build_optimizer
from densevit.errors import CheckpointError
from densevit.model_card import HeadSpec, ModelCard
from densevit.weights import checkpoint, tensor_files

CARD = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)
RANKS = 8
WORDS = ["data.val=null", "ema=0.9", "save_every=2", "keep_last=0"]


class Named(nn.Sequential):
    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"y": super().forward(x)}


def small_model() -> Named:
    """Some of its shapes divide by eight, others do not."""
    torch.manual_seed(0)
    return Named(nn.Linear(40, 64), nn.Linear(64, 24), nn.Linear(24, 3), nn.BatchNorm1d(3))


def rank_of_eight(rank: int) -> nn.Module:
    """The sharded model of one of eight processes, of which the others are not there."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
    DTensor.full_tensor = lambda self: pytest.fail("gathers a whole tensor")  # type: ignore[method-assign]
    return distributed.shard(small_model(), init_device_mesh("cpu", (RANKS,)))


def save_rank(folder: Path, rank: int) -> int:
    model = rank_of_eight(rank)
    optimizer = build_optimizer([{"params": list(model.parameters()), "scale": 1.0}], Optim())
    state = {"weights": model.state_dict(), "optimizer": optimizer.state_dict(), "step": [torch.tensor(3), 4]}
    tree, parts = tensor_files.stage(state, whole=rank == 0)
    tensor_files.write_shard(folder, rank, parts, checkpoint.header(CARD))
    if rank == 0:
        checkpoint.complete(folder, {}, "", tree, checkpoint.Manifest(step=1, samples=1))
    return sum(part.values.nbytes for part in parts.values())


def read_rank(folder: Path, rank: int) -> bool:
    own = rank_of_eight(rank).state_dict()
    read = checkpoint.read_state(folder, lambda path: own.get(path.removeprefix("weights/")))["weights"]
    return all(torch.equal(distributed.local(read[name]), distributed.local(value)) for name, value in own.items())


@pytest.mark.slow
def test_each_of_eight_processes_writes_its_eighth_and_any_number_reads_them(tmp_path: Path) -> None:
    whole = small_model().state_dict()
    tasks = [(tmp_path, rank) for rank in range(RANKS)]
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # torch remembers the rank of a mesh
        held = pool.starmap(save_rank, tasks, chunksize=1)
        assert all(pool.starmap(read_rank, [tasks[2], tasks[7]], chunksize=1))
    total = sum(value.nbytes for value in whole.values() if value.ndim)
    assert max(held) < 1.2 * total / RANKS and sum(held) == total
    read = checkpoint.read_state(tmp_path)
    assert read["step"] == [3, 4] and read["weights"].keys() == whole.keys()
    assert all(torch.equal(read["weights"][name], value) for name, value in whole.items())


@pytest.fixture(scope="module")
def saved(folder: Path) -> Path:
    """A run of one process with the option, of two checkpoints."""
    assert main(["train", str(small_config(folder)), *WORDS, "steps=4", "save_shards=true"]) == 0
    return folder


def test_it_is_loaded_evaluated_and_converted_to_one_file_as_any_other(saved: Path, tmp_path: Path) -> None:
    image = saved / "data/images/000.jpg"
    assert main(["convert", str(saved / "run"), str(tmp_path / "one.safetensors"), "--to", "densevit"]) == 0
    maps = [densevit.load(path)(image) for path in (saved / "run", tmp_path / "one.safetensors")]
    assert (maps[0] == maps[1]).all()
    data = ["--data", "folder", "--root", str(saved / "data"), "--data-options", "depth_scale=1000"]
    assert main(["eval", str(saved / "run"), *data, "--output", str(tmp_path / "eval")]) == 0
    whole = ["train", str(saved / "small.yaml"), *WORDS, "steps=4", f"output={tmp_path / 'whole'}"]
    assert main(whole) == 0
    ours, theirs = (checkpoint.read(run)[0] for run in (saved / "run", tmp_path / "whole"))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert checkpoint.read_card(saved / "run").model == checkpoint.read_card(tmp_path / "whole").model


def test_a_damaged_shard_is_named(saved: Path, tmp_path: Path) -> None:
    step = checkpoint.locate(saved / "run")
    copy = shutil.copytree(step, tmp_path / step.name)
    shard = copy / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"shard-00000\.safetensors: damaged"):
        checkpoint.read(copy)
    shard.unlink()
    with pytest.raises(CheckpointError, match=r"shard-00000\.safetensors: missing"):
        checkpoint.verify(copy)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_kill_while_a_shard_is_written_loses_nothing_that_was_saved(
    saved: Path, tmp_path: Path, fork_server: ForkServer, processes: int
) -> None:
    words = ["train", saved / "small.yaml", *WORDS, "steps=4", f"output={tmp_path}", "save_shards=true"]
    words += ["parallel=fsdp"] if processes > 1 else []
    children = fork_server.together(processes, *words, faults={processes - 1: "killed_writing_shard:2"})
    assert children[-1].wait() == -signal.SIGKILL
    assert [child.wait() for child in children[:-1]] == [1] * (processes - 1)
    assert [path.name for path in checkpoint.steps(tmp_path / "checkpoints")] == ["step-00000002"]
    text = fork_server.run(*words, "--resume")
    assert "damaged" not in text, text
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")) == []
    ours, theirs = (checkpoint.read(checkpoint.steps(run / "checkpoints")[-1])[0] for run in (tmp_path, saved / "run"))
    assert max(float((ours[name] - value).abs().max()) for name, value in theirs.items()) < 2e-6


@pytest.mark.slow
def test_what_goes_wrong_in_the_background_ends_the_run_and_keeps_what_was_saved(
    saved: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    words = ["train", saved / "small.yaml", *WORDS, "steps=4", f"output={tmp_path}", "save_shards=true"]
    fork_server.run(*words, fault="at_step:2", code=75)
    text = fork_server.run(*words, "--resume", fault="full_disk:100000", code=2)
    assert "no room" in text, text
    assert [path.name for path in checkpoint.steps(tmp_path / "checkpoints")] == ["step-00000002"]


@pytest.mark.slow
def test_one_process_then_four_with_fsdp_two_with_ddp_and_two_with_fsdp_train_what_one_does(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    words = ["train", small_config(tmp_path), *WORDS]
    fork_server.run(*words, f"output={tmp_path / 'whole'}")
    words += [f"output={tmp_path / 'parts'}", "save_shards=true", "--resume"]
    for step, (processes, parallel) in enumerate([(1, "ddp"), (4, "fsdp"), (2, "ddp"), (2, "fsdp")], start=1):
        faults = {0: "at_step:2"} if step < 4 else {}
        code = 75 if faults else 0
        fork_server.finish(processes, *words, f"parallel={parallel}", faults=faults, code=code)
        newest = checkpoint.steps(tmp_path / "parts/checkpoints")[-1]
        assert newest.name == f"step-{2 * step:08d}"
        assert len(list(newest.glob("shard-*"))) == (processes if parallel == "fsdp" else 1)
    assert_trained_alike(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "parallel", "shards"), [(RANKS, "fsdp", RANKS), (2, "ddp", 1)])
def test_processes_with_compiled_blocks_continue_a_run_of_one_and_train_what_it_does(
    tmp_path: Path, fork_server: ForkServer, processes: int, parallel: str, shards: int
) -> None:
    words = ["train", small_config(tmp_path), *WORDS, "steps=4", "batch_size=8", "save_shards=true"]
    fork_server.run(*words, f"output={tmp_path / 'whole'}")
    words += [f"output={tmp_path / 'parts'}", "--resume"]
    fork_server.run(*words, fault="at_step:2", code=75)
    counts = tmp_path / "counts"
    counts.mkdir()
    counting = dict.fromkeys(range(processes), f"counting_graphs:{counts}")
    fork_server.finish(processes, *words, f"parallel={parallel}", "compile=true", faults=counting)
    # Both blocks share a graph, each of the decoder's two stages has its own; no hook of FSDP or DDP breaks one.
    assert [json.loads(path.read_text()) for path in counts.iterdir()] == [[3, 0]] * processes
    sizes = [path.stat().st_size for path in checkpoint.locate(tmp_path / "parts").glob("shard-*")]
    assert len(sizes) == shards and max(sizes) < 2 * sum(sizes) / shards
    assert_trained_alike(tmp_path / "parts", tmp_path / "whole")


def assert_trained_alike(*runs: Path) -> None:
    """Weights, their average and the moments of two runs are the same."""
    ours, theirs = (checkpoint.read_state(checkpoint.steps(run / "checkpoints")[-1]) for run in runs)
    assert ours.keys() == theirs.keys() and ours["updates"] == theirs["updates"]
    pairs = [(ours[key], theirs[key]) for key in ("weights", "raw_weights")]
    pairs += [(ours["optimizer"]["state"][index], moments) for index, moments in theirs["optimizer"]["state"].items()]
    for mine, other in pairs:
        assert mine.keys() == other.keys()
        for name, value in other.items():
            assert torch.allclose(mine[name], value, atol=2e-6), name
