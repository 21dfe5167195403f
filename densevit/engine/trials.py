"""Steps on the images of one batch, which write nothing: `batch_size: auto`, and overfitting as a check of new data."""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from threading import Event
from time import perf_counter

from densevit.config.schema import Schedule, TrainConfig
from densevit.engine.checkpointer import BestScore
from densevit.engine.logger import read_csv
from densevit.engine.objective import Batches
from densevit.engine.trainer import Trainer
from densevit.errors import ConfigError, Diverged, Preempted
from densevit.structures import Batch
from densevit.utils.device import is_out_of_memory
from densevit.utils.output import tqdm
from densevit.utils.process import interruptible

TIMED_STEPS = 3  # with each size; the first warms up
GAIN = 1.05  # times the images per second that twice the images must give on a CPU


def choose_batch_size(measure: Callable[[int], float], first: int, most: int, *, fastest: bool) -> int:
    """Double a batch while it pays, and return the last size that did. Raises ConfigError: not even the first size
    fits.

    Args:
        measure: images of a step -> images per second; raises ConfigError from an error of memory if they do not fit.
        first: the smallest size.
        most: what no size exceeds, but for the first.
        fastest: stop where images per second no longer rise, not only where memory ends.
    """
    accepted, best, size = first, measure(first), 2 * first
    while size <= most:
        try:
            rate = measure(size)
        except ConfigError as error:
            if error.__cause__ is None or not is_out_of_memory(error.__cause__):
                raise
            break
        if fastest and rate < GAIN * best:
            break
        accepted, best, size = size, max(best, rate), 2 * size
    return accepted


def images_per_second(trainer: Trainer, train: Callable[[int], Batches]) -> float:
    """Take some steps on the images of the first one."""
    with closing(train(0)) as batches:
        repeated = forever(list(islice(batches, trainer.run.grad_accum_steps)))
    for step in range(TIMED_STEPS):
        if step == 1:
            began = perf_counter()
        trainer.train_step(repeated, Event())
    return trainer.run.batch_size * (TIMED_STEPS - 1) / (perf_counter() - began)


def forever(batches: list[Batch]) -> Generator[Batch, None, None]:
    yield from cycle(batches)


STEPS = 200  # at most; a run of fewer gives its own
LEARNED = 0.7  # fraction of its first absolute value by which the loss, which may be negative, must fall
LAST = 10  # steps whose mean is the last loss


def overfit_config(run: TrainConfig) -> TrainConfig:
    """Return the run with a constant learning rate, for at most `STEPS` steps."""
    steps = min(run.steps or STEPS, STEPS)
    return replace(run, steps=steps, schedule=Schedule(type="constant", warmup=0.0))


def overfit_one_batch(trainer: Trainer, train: Callable[[int], Batches]) -> str:
    """Take all steps of the run on the images of the first one, with the same augmentation, and return the
    verdict on the loss of all processes. Raises Diverged: see `judge_overfitting`."""
    run = trainer.run
    with closing(train(0)) as batches:
        first = list(islice(batches, run.grad_accum_steps))
    repeated = forever(first)
    losses: list[float] = []
    with interruptible() as stop:
        for _ in tqdm(range(run.steps or STEPS), desc="overfit", unit="step", disable=None):
            values, stopping = trainer.train_step(repeated, stop)
            losses.append(trainer.world.all_reduce_mean({"loss": values["loss"]})["loss"])
            if stopping:
                raise Preempted("stopped; --overfit-one-batch saves nothing.")
    return judge_overfitting(losses)


def judge_overfitting(losses: Sequence[float]) -> str:
    """Return the verdict, as text. Raises Diverged if the loss did not fall by `LEARNED`."""
    first, last = losses[0], fmean(losses[-LAST:])
    if not first:
        raise Diverged("one batch is not learned: its loss is 0: its images have no ground truth. Raise batch_size.")
    change = (last - first) / abs(first)
    course = f"{first:.4g} -> {last:.4g} in {len(losses)} steps ({change:+.0%})"
    if not change <= -LEARNED:
        raise Diverged(
            f"one batch is not learned: loss {course}. Check the ground truth (`densevit check-data`), the "
            "range of the head, and optim.lr; or give it more steps."
        )
    return f"one batch is learned: loss {course}. Model, losses and data fit together."


def stop_when_stalled(trainer: Trainer) -> None:
    """Make the last step of a training that of its last validation, if `early_stop` validations have passed since the
    best one. All processes must call it together."""
    run, state, folder = trainer.run, trainer.state, trainer.checkpointer.folder
    best = folder.score, folder.direction
    count: int = trainer.world.on_main(lambda: validations_since_best(run.output / "val.csv", state.step, best))
    if run.early_stop and count >= run.early_stop and state.step < trainer.steps:
        trainer.steps = state.step
        if trainer.world.is_main:
            print(f"early_stop: {best[0]} is no better (validations since: {count}); run ends at step {state.step}.")


def validations_since_best(log: Path, step: int, best: BestScore) -> int:
    """Count the validations after the best one, up to a step, in `val.csv`, which a resumed run continues; 0 where none
    has the score."""
    score, direction = best
    sign = 1 if direction == "min" else -1
    values = [sign * row.get(score, math.nan) for row in read_csv(log) if row["step"] <= step]
    good = [math.inf if math.isnan(value) else value for value in values]
    return len(good) - 1 - good.index(min(good)) if min(good, default=math.inf) < math.inf else 0
