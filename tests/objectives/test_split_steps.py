"""A step is the same step on one process, on two, and in micro-batches, also where its losses pool the batch."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from forked import ForkServer
from small import small_config
from torch import Tensor

from densevit.builder import plan as planning
from densevit.builder import training
from densevit.engine.distributed import DistributedContext
from densevit.engine.logger import read_csv
from densevit.engine.train_state import seed_everything
from densevit.engine.trainer import Trainer
from densevit.weights import checkpoint

WORLD = DistributedContext(torch.device("cpu"))
SILOG = "tasks.depth.losses=[{type: silog, pool: batch}, {type: l1, pool: batch, weight: 0.5}]"
BY_MICRO_BATCH = SILOG.replace("batch", "micro_batch")
DROPOUT = "model.encoder.drop_path=0.5"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with 100% to 5% of their depth."""
    path = small_config(tmp_path_factory.mktemp("split"))
    for i, file in enumerate(sorted((path.parent / "data/depths").glob("*.png"))):
        depth = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        kept = np.random.default_rng(i).random(depth.shape) < (1.0, 0.05, 0.5, 0.05, 0.8, 0.1)[i]
        cv2.imwrite(str(file), np.where(kept, depth, 0).astype(np.uint16))
    return path


def step(config: Path, *words: str) -> tuple[Trainer, Tensor, Tensor]:
    """The trainer after forward and backward of its first step, its loss and its gradient."""
    seed_everything(0)
    trainer = training.build_trainer(plan := planning.load_plan(config, list(words)).open(), WORLD)
    batches = training.train_batches(plan, WORLD)(0)
    tensors = trainer.forward_backward_step(batches)
    batches.close()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
    return trainer, torch.stack(list(tensors.losses.values())), gradient


def test_micro_batches_give_the_loss_and_the_gradient_of_the_whole_batch(config: Path) -> None:
    _, loss, gradient = step(config, SILOG)
    for count in (2, 4):
        _, split_loss, split_gradient = step(config, SILOG, f"grad_accum_steps={count}")
        torch.testing.assert_close(split_loss, loss, rtol=1e-5, atol=0)
        torch.testing.assert_close(split_gradient, gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()))
    _, split_loss, _ = step(config, BY_MICRO_BATCH, "grad_accum_steps=4")
    assert abs(split_loss / loss - 1).max() > 0.05  # what is the pool of published code, and must be asked for


def test_looking_ahead_leaves_random_states_as_they_were(config: Path) -> None:
    states = []
    for losses in (SILOG, BY_MICRO_BATCH):
        step(config, losses, DROPOUT, "grad_accum_steps=2")
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.slow
def test_two_processes_train_as_one(config: Path, fork_server: ForkServer, tmp_path: Path) -> None:
    weights, losses = [], []
    for number, (processes, words) in enumerate([(1, []), (2, []), (2, ["grad_accum_steps=2"])]):
        output = tmp_path / str(number)
        argv = ["train", config, SILOG, "steps=3", "validate_every=3", *words, f"output={output}"]
        fork_server.finish(processes, *argv)
        weights.append(checkpoint.read(checkpoint.steps(output / "checkpoints")[-1])[0])
        losses.append([row["loss"] for row in read_csv(output / "train.csv")])
    for other in (1, 2):
        assert losses[other] == pytest.approx(losses[0], rel=1e-5)
        worst = max(float((value - weights[other][name]).abs().max()) for name, value in weights[0].items())
        assert worst < 2e-5
