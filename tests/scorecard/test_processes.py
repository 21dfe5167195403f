"""Several processes (gloo) are one run: they agree on every step, and files do not tell how many there were."""

from pathlib import Path

import pytest
import torch
from forked import ForkServer
from small import config_with_loss, small_config, small_folder
from torch import Tensor

from densevit.engine.logger import read_csv
from densevit.weights import checkpoint

pytestmark = pytest.mark.slow
WORDS = ["ema=0.9", "grad_accum_steps=2", "save_every=2", "keep_last=0"]
# What falls on the process of rank 1 (or on the only one): NaN in its third loss, whose gradient is finite, so that the
# others do not notice by themselves.
PLUGIN = """
import os

from densevit.losses.depth import DEPTH_LOSSES, DepthLoss


@DEPTH_LOSSES.register("nan_once")
class NanOnce(DepthLoss):
    calls = 0

    def forward(self, pred, target, valid):
        self.calls += 1
        hit = os.environ.get("RANK", "1") == "1" and self.calls == 3
        return (pred - target).abs().mean() + (float("nan") if hit else 0.0)
"""


def weights(run: Path) -> dict[str, Tensor]:
    return checkpoint.read(checkpoint.steps(run / "checkpoints")[-1])[0]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in read_csv(run / "train.csv")]


def assert_close(one: Path, other: Path) -> None:
    """The sums of a batch are taken in another order by two processes: the last bits differ."""
    theirs = weights(other)
    assert max(float((value - theirs[name]).abs().max()) for name, value in weights(one).items()) < 2e-6
    assert losses(one) == pytest.approx(losses(other), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_goes_from_one_process_to_two_and_back(tmp_path: Path, fork_server: ForkServer, parallel: str) -> None:
    config, writers = small_config(tmp_path), tmp_path / "writers"
    fork_server.run("train", config, *WORDS, f"output={tmp_path / 'whole'}")
    words = ["train", config, *WORDS, f"output={tmp_path / 'parts'}", f"parallel={parallel}"]
    fork_server.run(*words, fault="at_step:3", code=75)
    fork_server.finish(2, *words, "--resume", faults={0: f"noting_writes:{writers}", 1: f"noting_writes:{writers}"})
    assert set(writers.read_text().split()) == ({"0", "1"} if parallel == "fsdp" else {"0"})
    assert_close(tmp_path / "parts", tmp_path / "whole")
    # and back: the last steps once more, on one process, from what two had saved
    for path in checkpoint.steps(tmp_path / "parts/checkpoints")[-2:]:
        path.rename(tmp_path / path.name)
    fork_server.run(*words, "--resume")
    assert_close(tmp_path / "parts", tmp_path / "whole")
    ours, theirs = (
        checkpoint.read_state(checkpoint.steps(tmp_path / run / "checkpoints")[-1]) for run in ("parts", "whole")
    )
    assert ours.keys() == theirs.keys()
    for index, moments in theirs["optimizer"]["state"].items():
        for name, value in moments.items():
            assert torch.allclose(ours["optimizer"]["state"][index][name], value, atol=2e-6), (index, name)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_nan_on_one_of_two_processes_skips_the_step_on_both(
    tmp_path: Path, fork_server: ForkServer, parallel: str
) -> None:
    words = ["train", *config_with_loss(tmp_path, PLUGIN, "nan_once"), "ema=0.9", "data.val=null"]
    children = fork_server.finish(2, *words, f"parallel={parallel}", f"output={tmp_path / 'two'}")
    said = [child.out.read_text() for child in children]
    assert all("step 3: loss or gradient is not finite; step skipped. Rank" in text for text in said)
    assert read_csv(tmp_path / "two/train.csv")[-1]["skipped"] == 1
    fork_server.run(*words, f"output={tmp_path / 'one'}")
    assert_close(tmp_path / "two", tmp_path / "one")


def test_two_processes_validate_to_the_scores_of_one(tmp_path: Path, fork_server: ForkServer) -> None:
    """Seven images, so that their shares differ; no image is padded or counted twice."""
    config = small_config(tmp_path)
    small_folder(tmp_path / "odd", count=7)
    words = ["train", config, "steps=1", "optim.lr=1e-12", f"data.val.root={tmp_path / 'odd'}"]
    fork_server.run(*words, f"output={tmp_path / 'one'}")
    for parallel in ("ddp", "fsdp"):
        fork_server.finish(2, *words, f"parallel={parallel}", f"output={tmp_path / parallel}")
        scores = [read_csv(tmp_path / run / "val.csv")[-1] for run in ("one", parallel)]
        for name, value in scores[0].items():
            assert name == "seconds" or scores[1][name] == pytest.approx(value, rel=1e-6), name
