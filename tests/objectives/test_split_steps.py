"""A step is the same step on one process, on two, and in micro-batches, also where its losses pool the batch."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from forked import ForkServer
from opened import assert_alike, first_step, three_steps
from small import small_config

SILOG = "tasks.depth.losses=[{type: silog, pool: batch}, {type: l1, pool: batch, weight: 0.5}]"
BY_MICRO_BATCH = SILOG.replace("batch", "micro_batch")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with 100% to 5% of their depth."""
    path = small_config(tmp_path_factory.mktemp("split"))
    for i, file in enumerate(sorted((path.parent / "data/depths").glob("*.png"))):
        depth = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        kept = np.random.default_rng(i).random(depth.shape) < (1.0, 0.05, 0.5, 0.05, 0.8, 0.1)[i]
        cv2.imwrite(str(file), np.where(kept, depth, 0).astype(np.uint16))
    return path


def test_micro_batches_give_the_loss_and_the_gradient_of_the_whole_batch(config: Path) -> None:
    loss, gradient = first_step(config, SILOG)
    for count in (2, 4):
        split_loss, split_gradient = first_step(config, SILOG, f"grad_accum_steps={count}")
        torch.testing.assert_close(split_loss, loss, rtol=1e-5, atol=0)
        torch.testing.assert_close(split_gradient, gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()))
    split_loss, _ = first_step(config, BY_MICRO_BATCH, "grad_accum_steps=4")
    assert abs(split_loss / loss - 1).max() > 0.05  # what is the pool of published code, and must be asked for


def test_looking_ahead_leaves_random_states_as_they_were(config: Path) -> None:
    states = []
    for losses in (SILOG, BY_MICRO_BATCH):
        first_step(config, losses, "model.encoder.drop_path=0.5", "grad_accum_steps=2")
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.slow
def test_two_processes_train_as_one(config: Path, fork_server: ForkServer, tmp_path: Path) -> None:
    runs = [
        three_steps(fork_server, processes, config, SILOG, *words, output=tmp_path / str(number))
        for number, (processes, words) in enumerate([(1, []), (2, []), (2, ["grad_accum_steps=2"])])
    ]
    assert_alike(runs[0], runs[1])
    assert_alike(runs[0], runs[2])
