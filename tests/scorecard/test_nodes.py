"""Two nodes of two processes each, on this machine: by torchrun, and by the script for SLURM with stand-ins of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import ForkServer
from small import config_with_loss
from torch.distributed import TCPStore

from densevit.engine.logger import read_csv
from densevit.weights import checkpoint

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PLUGIN = """
import os, signal
from pathlib import Path
from densevit.losses.depth import DEPTH_LOSSES, DepthLoss


@DEPTH_LOSSES.register("hit_once")
class HitOnce(DepthLoss):
    calls = 0

    def forward(self, pred, target, valid):
        self.calls += 1
        mark = Path(__file__).with_name("mark")
        if os.environ.get("RANK") == "3" and self.calls == 4 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.{signal})
        return (pred - target).abs().mean()
"""
# Two nodes of two tasks; srun ends with the largest exit code of its tasks.
SRUN = """#!/bin/bash
export SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2
for i in 0 1 2 3; do SLURM_PROCID=$i SLURM_LOCALID=$((i % 2)) SLURM_NODEID=$((i / 2)) "$@" & tasks+=($!); done
for task in "${tasks[@]}"; do wait $task; code=$?; [ $code -gt ${most:-0} ] && most=$code; done
exit ${most:-0}
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && { echo localhost; echo other; } || echo "$@" >> "$(dirname "$0")/requeued"
"""


def config_with_hit(folder: Path, signal: str) -> list[str]:
    words = config_with_loss(folder, PLUGIN.replace("{signal}", signal), "hit_once")
    return [*words, "data.val=null", "save_every=2", "steps=5"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def assert_as_one_process(folder: Path, words: list[str], fork_server: ForkServer) -> None:
    assert (folder / "mark").exists()
    fork_server.run("train", *words, f"output={folder / 'one'}")
    one, nodes = (checkpoint.read(folder / run / "checkpoints/last")[0] for run in ("one", "nodes"))
    assert all(torch.allclose(value, one[name], atol=2e-6) for name, value in nodes.items())
    assert [row["step"] for row in read_csv(folder / "nodes/train.csv")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_torchrun_on_two_nodes_restarts_after_a_death_and_ends_as_one_process(
    tmp_path: Path, fork_server: ForkServer, parallel: str
) -> None:
    words = config_with_hit(tmp_path, "SIGKILL")
    port = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port  # free again at once
    launch = ["--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-id=nyu", "--rdzv-backend=c10d"]
    launch += [f"--rdzv-endpoint=127.0.0.1:{port}", str(ROOT / "tools/train.py")]
    command = [sys.executable, "-m", "torch.distributed.run", *launch, *words, "--resume"]
    agents = [
        subprocess.Popen(
            [*command, f"output={tmp_path / 'nodes'}", f"parallel={parallel}"],
            env=environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"), stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    errors = [agent.communicate(timeout=400)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], errors[0][-3000:]
    assert_as_one_process(tmp_path, words, fork_server)


def test_the_script_for_slurm_is_requeued_after_the_signal_and_ends_as_one_process(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    words = config_with_hit(tmp_path, "SIGTERM")
    densevit = f'#!/bin/bash\nexec {sys.executable} -m densevit "$@"\n'
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("densevit", densevit)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node[1-2]"}
    for code in (75, 0):
        done = subprocess.run(
            ["bash", str(ROOT / "examples/slurm/train.sbatch"), *words, f"output={tmp_path / 'nodes'}"],
            env=environment(**job, PATH=f"{tmp_path}:{os.environ['PATH']}"), timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == code
    assert (tmp_path / "requeued").read_text() == f"requeue {os.getpid()}\n"
    assert_as_one_process(tmp_path, words, fork_server)
