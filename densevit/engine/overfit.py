"""The first thing to try with new data or a new part: a model that cannot learn one batch by heart learns nothing."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from statistics import fmean

from tqdm import tqdm

from densevit.config.schema import Run, Schedule
from densevit.engine.interfaces import Batches
from densevit.engine.trainer import Trainer
from densevit.errors import Diverged, Preempted
from densevit.structures import Batch
from densevit.utils.signals import interruptible

STEPS = 200  # at most; a run of fewer gives its own
LEARNED = 0.3  # of the first loss: what may be left of it
LAST = 10  # steps, whose mean is the last loss


def overfit_config(run: Run) -> Run:
    """The run with a constant rate and no average, for at most `STEPS` steps."""
    steps = min(run.steps or STEPS, STEPS)
    return replace(run, steps=steps, schedule=Schedule(type="constant", warmup=0.0), ema=None)


def overfit_one_batch(trainer: Trainer, train: Callable[[int], Batches]) -> str:
    """Takes all steps of the run on the images of the first one, as they are augmented there.

    Returns:
        the verdict, in words.

    Raises:
        Diverged: the loss did not fall to `LEARNED` of what it was.
    """
    with closing(train(0)) as batches:
        first = list(islice(batches, trainer.run.grad_accum_steps))
    again = _forever(first)
    losses: list[float] = []
    with interruptible() as stop:
        for _ in tqdm(range(trainer.steps), desc="overfit", unit="step", disable=not trainer.world.is_main):
            values, stopping = trainer.take_step(again, stop)
            losses.append(values["loss"])
            if stopping:
                raise Preempted("stopped; a trial saves nothing.")
    last = fmean(losses[-LAST:])
    course = f"{losses[0]:.4g} -> {last:.4g} in {len(losses)} steps ({last / losses[0]:.0%})"
    if not last <= LEARNED * losses[0]:
        raise Diverged(
            f"one batch is not learned: loss {course}. Look at the truth (`densevit check-data`), at the range of the "
            "head, and at optim.lr; or give it more steps."
        )
    return f"one batch is learned: loss {course}. Model, losses and data fit together."


def _forever(batches: list[Batch]) -> Generator[Batch, None, None]:
    while True:
        yield from batches
