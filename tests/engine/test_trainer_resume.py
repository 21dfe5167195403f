"""Parts that change over a run are told how far it is; SGD and two warm-ups are resumed as the usual ways are."""

from pathlib import Path

import pytest
import torch
from test_trainer import (
    VAL,
    Toy,
    ToyTask,
    assert_equal,
    everything,
    interrupted_at,
    resumed,
    some_run,
    some_trainer,
    toy_trainer,
    train,
)
from torch import nn

from densevit.config.schema import Optim, Schedule


class Fading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []

    def on_train_step(self, progress: float) -> None:
        self.told.append(progress)


def test_a_part_is_told_before_each_step_and_a_skipped_step_is_no_progress(tmp_path: Path) -> None:
    model = Toy()
    part = Fading()
    model.inner = nn.Sequential(part)
    run = some_run(tmp_path, steps=5, ema=None)
    poisoned = ToyTask({3: float("nan")})  # the second step's first half
    trainer = toy_trainer(run, model, poisoned)
    trainer.fit(train, None)
    assert part.told == pytest.approx([0, 1 / 5, 1 / 5, 2 / 5, 3 / 5])


def test_sgd_resumes_bit_for_bit(tmp_path: Path) -> None:
    sgd = Optim(type="sgd", lr=1e-3)
    whole = some_trainer(some_run(tmp_path / "a", optim=sgd))
    whole.fit(train, VAL)
    interrupted_at(5, tmp_path / "b", optim=sgd)
    again = resumed(some_run(tmp_path / "b", optim=sgd))
    again.fit(train, VAL)
    assert_equal(everything(again), everything(whole))


def test_an_encoder_with_a_warm_up_of_its_own_rests_first_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    two = Schedule(warmup=3.0, encoder_warmup=2.0)
    start = some_trainer(some_run(tmp_path)).model.state_dict()
    begun = start["encoder.conv.weight"].clone(), start["head.weight"].clone()
    interrupted_at(3, tmp_path / "a", schedule=two)
    resting = resumed(some_run(tmp_path / "a", schedule=two))
    assert torch.equal(resting.model.encoder.conv.weight, begun[0])
    assert not torch.equal(resting.model.head.weight, begun[1])
    resting.fit(train, VAL)
    whole = some_trainer(some_run(tmp_path / "b", schedule=two))
    whole.fit(train, VAL)
    assert not torch.equal(whole.model.encoder.conv.weight, begun[0])
    assert_equal(everything(resting), everything(whole))
