"""Parts that change over a run are told how far it is, and SGD is resumed like AdamW."""

from pathlib import Path

import pytest
from test_trainer import (
    CARD,
    CPU,
    VAL,
    Toy,
    ToyTask,
    assert_equal,
    everything,
    interrupted_at,
    resumed,
    some_run,
    some_trainer,
    train,
)
from torch import nn

from densevit.config import Optim
from densevit.engine.scheduled import scheduled_parts
from densevit.engine.trainer import Trainer


class Fading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []

    def at_progress(self, share: float) -> None:
        self.told.append(share)


def test_a_part_is_told_before_each_step_and_a_skipped_step_is_no_progress(tmp_path: Path) -> None:
    model = Toy()
    model.inner = nn.Sequential(Fading())
    (part,) = scheduled_parts(model)
    run = some_run(tmp_path, steps=5, ema=None)
    poisoned = ToyTask({3: float("nan")})  # the second step's first half
    trainer = Trainer(run, model, {"depth": poisoned}, CPU, predict=lambda model, image: model(image), card=CARD)
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
