"""A config opened as `train` opens it, up to the trainer and its first batches."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from forked import ForkServer
from torch import Tensor

from densevit.builder import plan as planning
from densevit.builder import training
from densevit.engine.logger import read_csv
from densevit.engine.train_state import seed_everything
from densevit.engine.trainer import Trainer
from densevit.structures import Batch
from densevit.utils.process_group import ProcessGroup
from densevit.weights import checkpoint

WORLD = ProcessGroup(torch.device("cpu"))


def opened(config: Path, *words: str) -> tuple[Trainer, Iterator[Batch]]:
    seed_everything(0)
    plan = planning.load_plan(config, list(words)).open()
    return training.build_trainer(plan, WORLD), training.train_batches(plan, WORLD)(0)


def with_first_batch(config: Path, *words: str) -> tuple[Trainer, Batch]:
    trainer, batches = opened(config, *words)
    batch = trainer.upload(next(batches))
    batches.close()
    return trainer, batch


def first_step(config: Path, *words: str) -> tuple[Tensor, Tensor]:
    """Losses and gradient of the first step."""
    trainer, batches = opened(config, *words)
    tensors = trainer.forward_backward_step(batches)
    batches.close()
    parameters = (*trainer.model.parameters(), *trainer.objective.parameters())
    gradient = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    return torch.stack(list(tensors.losses.values())), gradient


def three_steps(
    server: ForkServer, count: int, config: Path, *words: str, output: Path
) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and losses of a run of three steps by `count` processes."""
    server.finish(count, "train", config, *words, "steps=3", "validate_every=3", f"output={output}")
    weights, _ = checkpoint.read(checkpoint.steps(output / "checkpoints")[-1])
    return weights, [row["loss"] for row in read_csv(output / "train.csv")]


def assert_alike(one: tuple[dict[str, Tensor], list[float]], other: tuple[dict[str, Tensor], list[float]]) -> None:
    """Two results of `three_steps` differ by the order of sums alone."""
    assert other[1] == pytest.approx(one[1], rel=1e-5)
    assert max(float((value - other[0][name]).abs().max()) for name, value in one[0].items()) < 2e-5
