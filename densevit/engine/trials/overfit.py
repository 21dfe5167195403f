"""Overfits one batch: a check of new data or a new component before a long training."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from statistics import fmean
from threading import Event

from densevit.config.schema import Run, Schedule
from densevit.engine.interfaces import Batches
from densevit.engine.train_state import Scores
from densevit.engine.trials.batch_size import forever
from densevit.errors import Diverged, Preempted
from densevit.utils.progress import tqdm
from densevit.utils.signals import interruptible

STEPS = 200  # at most; a run of fewer gives its own
LEARNED = 0.3  # the share of the first loss that may be left
LAST = 10  # steps whose mean is the last loss


def overfit_config(run: Run) -> Run:
    """The run with a constant learning rate and no moving average, for at most `STEPS` steps."""
    steps = min(run.steps or STEPS, STEPS)
    return replace(run, steps=steps, schedule=Schedule(type="constant", warmup=0.0), ema=None)


def overfit_one_batch(
    train_step: Callable[[Batches, Event], tuple[Scores, bool]], run: Run, train: Callable[[int], Batches]
) -> str:
    """Takes all steps of the run on the images of the first one, with the same augmentation. `train_step`:
    `Trainer.train_step`. Raises Diverged if the loss did not fall to `LEARNED` of what it was. Returns the verdict, as
    text."""
    with closing(train(0)) as batches:
        first = list(islice(batches, run.grad_accum_steps))
    repeated = forever(first)
    losses: list[float] = []
    with interruptible() as stop:
        for _ in tqdm(range(run.steps or STEPS), desc="overfit", unit="step", disable=None):
            values, stopping = train_step(repeated, stop)
            losses.append(values["loss"])
            if stopping:
                raise Preempted("stopped; --overfit-one-batch saves nothing.")
    last = fmean(losses[-LAST:])
    course = f"{losses[0]:.4g} -> {last:.4g} in {len(losses)} steps ({last / losses[0]:.0%})"
    if not last <= LEARNED * losses[0]:
        raise Diverged(
            f"one batch is not learned: loss {course}. Check the ground truth (`densevit check-data`), the "
            "range of the head, and optim.lr; or give it more steps."
        )
    return f"one batch is learned: loss {course}. Model, losses and data fit together."
