"""Early stopping: a run ends after a number of validations in a row without a better score."""

import math
from pathlib import Path

from densevit.engine.checkpointer import BestScore
from densevit.engine.logger import read_csv
from densevit.engine.trainer import Trainer


def stop_when_stalled(trainer: Trainer) -> None:
    """Make the last step of a training that of its last validation, if `early_stop` validations have passed since the
    best one. All processes must call it together."""
    run, state, folder = trainer.run, trainer.state, trainer.checkpointer.folder
    best = folder.score, folder.direction
    count: int = trainer.world.on_main(lambda: validations_since_best(run.output / "val.csv", state.step, best))
    if run.early_stop and count >= run.early_stop and state.step < trainer.steps:
        trainer.steps = state.step
        if trainer.world.is_main:
            print(f"early_stop: {count} validations without a better {best[0]}; the run ends at step {state.step}.")


def validations_since_best(log: Path, step: int, best: BestScore) -> int:
    """Count the validations after the best one, up to a step, in `val.csv`, which a resumed run continues."""
    score, direction = best
    sign = 1 if direction == "min" else -1
    values = [sign * row.get(score, math.nan) for row in read_csv(log) if row["step"] <= step]
    good = [math.inf if math.isnan(value) else value for value in values]
    return len(good) - 1 - good.index(min(good)) if good else 0
