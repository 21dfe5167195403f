"""Validation during training: every image once, whatever the number of processes, in the order of the data set."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from threading import Event
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from tqdm import tqdm

from densevit.engine.distributed import DistributedContext
from densevit.engine.interfaces import Scores, Validation
from densevit.engine.logger import MetricLogger
from densevit.structures import Batch
from densevit.utils.precision import autocast

if TYPE_CHECKING:
    from densevit.engine.trainer import Trainer


class Stopped(Exception):
    """A process was asked to stop; all leave the validation together."""


def score(trainer: "Trainer", val: Validation, log: MetricLogger, stop: Event) -> Scores | None:
    """The scores of the model, of its moving average where there is one; None if `stop` was set on the way."""
    world = trainer.world
    found: dict[str, dict[int, Scores]] = {name: {} for name in trainer.tasks}
    world.share(trainer.statistics.running)  # each process had gathered its own
    trainer.model.eval()
    bar = tqdm(total=len(val), desc="validate", unit="image", leave=False, disable=not world.is_main, delay=1)
    try:
        with trainer.ema.applied() if trainer.ema else nullcontext(), torch.no_grad(), bar:
            for number, batch in enumerate(synchronized_batches(val, world, stop)):
                if batch is None:
                    dummy_forward(trainer.model, trainer.card.multiple, world)
                    continue
                batch = batch.to(world.device)
                with autocast(trainer.precision, world.device):
                    predictions = trainer.predict(trainer.model, batch.image)
                for name, task in trainer.tasks.items():
                    prediction = predictions[name].float()
                    found[name] |= dict(zip(batch.indices, task.rows(prediction, batch), strict=True))
                    if number == 0:
                        log.picture(f"panel/{name}", trainer.step, task.panel(prediction, batch))
                bar.update(len(batch))
    except Stopped:
        return None
    return gather_scores(trainer, found)


def synchronized_batches(batches: Iterable[Batch], world: DistributedContext, stop: Event) -> Iterator[Batch | None]:
    """A batch on each process at a time, None where there are no more, until there are none anywhere.

    Raises:
        Stopped: on all processes at once.
    """
    waiting = iter(batches)
    try:
        while True:
            batch = next(waiting, None)
            finished, stopping = world.agree(batch is None, stop.is_set())
            if stopping:
                raise Stopped
            if finished:
                return
            yield batch
    finally:
        getattr(waiting, "close", lambda: None)()  # ends the loader's workers now


def dummy_forward(model: nn.Module, multiple: int, world: DistributedContext) -> None:
    """Sharded processes lend each other their parts in every forward pass, also to one that has more images."""
    if isinstance(model, FSDPModule):
        model(torch.zeros(1, 3, 4 * multiple, 4 * multiple, device=world.device))


def gather_scores(trainer: "Trainer", found: dict[str, dict[int, Scores]]) -> Scores:
    """One row for the data set from the rows that each process has, by index."""
    scores: Scores = {}
    for name, task in trainer.tasks.items():
        rows: dict[int, Scores] = {}
        for part in trainer.world.gather(found[name]):
            rows |= part
        summary = task.summary([rows[index] for index in sorted(rows)])
        alone = len(trainer.tasks) == 1
        scores |= summary if alone else {f"{name}/{key}": value for key, value in summary.items()}
    return scores
