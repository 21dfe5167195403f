"""The same run twice, in one piece or in several, with any number of workers: the same bits on a CPU."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import small_config
from torch import Tensor

from densevit.builder import plan as planning
from densevit.builder import training
from densevit.engine import run_folder
from densevit.engine.distributed import DistributedContext
from densevit.engine.interfaces import Batches
from densevit.engine.logger import read_csv
from densevit.engine.performance.throughput import COLUMNS as SPEED
from densevit.engine.trainer import Trainer
from densevit.errors import Preempted
from densevit.structures import Batch
from densevit.utils import seed

CPU = DistributedContext(torch.device("cpu"))
STEPS = 12
# Stochastic depth draws from torch's generator in every step; fp16 adds the scale of the loss.
OPTIONS = [
    f"steps={STEPS}",
    "grad_accum_steps=2",
    "ema=0.9",
    "model.encoder.drop_path=0.3",
    "save_every=4",
    "schedule.type=cosine",
]


@dataclass
class Course:
    """A run, or a part of one, with the images of each micro-batch."""

    trainer: Trainer
    seen: list[tuple[int, ...]] = field(default_factory=list)


class Watched:
    """Batches that are noted, and in the middle of one step a signal."""

    def __init__(self, batches: Batches, course: Course, stop_in: int | None) -> None:
        self.batches, self.course, self.stop_in = batches, course, stop_in

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.course.trainer.state.step + 1 == self.stop_in:
            os.kill(os.getpid(), signal.SIGTERM)
            self.stop_in = None
        batch = next(self.batches)
        self.course.seen.append(batch.indices)
        return batch

    def close(self) -> None:
        self.batches.close()


def course(config: Path, *overrides: str, resume: bool = False, stop_in: int | None = None) -> Course:
    plan = planning.load_plan(config, [*OPTIONS, *overrides]).open()
    found = run_folder.find_checkpoint(plan.run, "auto" if resume else None, CPU)
    seed.seed_everything(plan.run.seed)
    made = Course(training.build_trainer(plan, CPU))
    seed.reseed(plan.run.seed, 0)
    if found is not None:
        made.trainer.checkpointer.load(*found)
    batches: Callable[[int], Batches] = training.train_batches(plan, CPU)
    try:
        made.trainer.fit(lambda start: Watched(batches(start), made, stop_in), training.val_batches(plan, CPU))
    except Preempted:
        assert stop_in is not None
    return made


def everything(trainer: Trainer) -> dict[str, Any]:
    """All that a step depends on, and all that it leaves. Python's own generator is compared in `test_preemption.py`:
    here the checker of types draws from it, whenever it looks into a list."""
    state: dict[str, Any] = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    state |= {f"ema.{name}": value for name, value in trainer.ema.state_dict().items()}
    for index, moments in trainer.optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
    state["scaler"] = torch.tensor(list(trainer.scaler.state_dict().values()) or [0.0])
    state["schedule"] = torch.tensor([trainer.rates[0](trainer.state.updates)])
    counters = ("step", "updates", "samples", "skipped_in_row")
    state["counts"] = torch.tensor([getattr(trainer.state, name) for name in counters])
    state["numpy"] = torch.from_numpy(np.asarray(np.random.get_state()[1], np.int64))  # noqa: NPY002
    state["torch"] = torch.get_rng_state()
    state["scores"] = torch.tensor(list(trainer.state.scores.values()))
    best = trainer.checkpointer.folder.best()
    state["best"] = torch.tensor([int(best.name[-8:]) if best else -1])
    return {name: value.clone() for name, value in state.items()}


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


def curve(config: Path, run: str) -> list[dict[str, float]]:
    rows = read_csv(config.parent / run / "train.csv")
    return [{name: value for name, value in row.items() if name not in {"seconds", *SPEED}} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "precision"), [(0, "fp16"), (2, "fp32")])
def test_a_run_stopped_at_random_steps_ends_where_one_in_one_piece_does(
    tmp_path: Path, workers: int, precision: str
) -> None:
    config = small_config(tmp_path)
    options = [f"data.workers={workers}", f"precision={precision}"]
    whole = course(config, *options, f"output={tmp_path / 'whole'}")
    expected = everything(whole.trainer)
    steps = sorted(random.Random(workers).sample(range(1, STEPS), 3))
    output = f"output={tmp_path / 'parts'}"
    seen = course(config, *options, output, stop_in=steps[0]).seen
    for step in [*steps[1:], None]:
        part = course(config, *options, output, resume=True, stop_in=step)
        seen += part.seen
    assert differing(everything(part.trainer), expected) == []
    assert seen == whole.seen
    assert curve(config, "parts") == curve(config, "whole")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # on two cores
def test_the_same_seed_gives_the_same_weights_with_any_number_of_workers(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    runs = {
        name: course(config, f"data.workers={workers}", f"output={tmp_path / name}", "steps=5", "data.val=null")
        for name, workers in {"first": 0, "again": 0, "one": 1, "two": 2, "four": 4}.items()
    }
    first = runs.pop("first")
    expected = everything(first.trainer)
    assert len(set(first.seen)) > 1
    for name, run in runs.items():
        assert run.seen == first.seen
        assert differing(everything(run.trainer), expected) == [], name
        assert curve(config, name) == curve(config, "first")


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    runs = [
        course(config, f"seed={number}", f"output={tmp_path / str(number)}", "steps=1", "data.val=null")
        for number in (0, 1)
    ]
    assert runs[0].seen != runs[1].seen
    assert any(name.startswith("model.") for name in differing(*(everything(run.trainer) for run in runs)))
