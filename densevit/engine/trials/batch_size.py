"""`batch_size: auto`: the most images that fit on a GPU, by doubling, or the fewest at which a CPU is fastest."""

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import cycle, islice
from threading import Event
from time import perf_counter

from densevit.engine.interfaces import Batches
from densevit.engine.trainer import Trainer
from densevit.errors import ConfigError
from densevit.structures import Batch
from densevit.utils.device import is_out_of_memory

STEPS = 3  # that are taken with each size; the first warms up
GAIN = 1.05  # times the images per second that twice the images must give on a CPU


def choose_batch_size(measure: Callable[[int], float], first: int, most: int, *, fastest: bool) -> int:
    """Double a batch while it pays, and return the last size that did.

    Args:
        measure: images of a step -> images per second; raises ConfigError from an error of memory if they do not fit.
        first: the smallest size.
        most: what no size exceeds, but for the first.
        fastest: stop where images per second no longer rise, not only where memory ends.

    Raises:
        ConfigError: not even the first size fits.
    """
    chosen, best, size = first, measure(first), 2 * first
    while size <= most:
        try:
            rate = measure(size)
        except ConfigError as error:
            if error.__cause__ is None or not is_out_of_memory(error.__cause__):
                raise
            break
        if fastest and rate < GAIN * best:
            break
        chosen, best, size = size, max(best, rate), 2 * size
    return chosen


def images_per_second(trainer: Trainer, train: Callable[[int], Batches]) -> float:
    """Take some steps on the images of the first one."""
    with closing(train(0)) as batches:
        repeated = forever(list(islice(batches, trainer.run.grad_accum_steps)))
    for step in range(STEPS):
        if step == 1:
            began = perf_counter()
        trainer.train_step(repeated, Event())
    return trainer.run.batch_size * (STEPS - 1) / (perf_counter() - began)


def forever(batches: list[Batch]) -> Generator[Batch, None, None]:
    yield from cycle(batches)
