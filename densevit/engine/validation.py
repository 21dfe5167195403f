"""Validation during training: every image once, whatever the number of processes, in the order of the data set."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from densevit.engine.logger import MetricLogger
from densevit.engine.objective import Validation
from densevit.engine.train_state import Scores, TrainState
from densevit.structures import Batch
from densevit.tasks.base import Task
from densevit.utils.device import Precision, autocast, gpu_products
from densevit.utils.output import tqdm
from densevit.utils.process_group import ProcessGroup

Predict = Callable[[nn.Module, Batch, Precision], tuple[Batch, dict[str, Tensor]]]
"""Runs a model on the images of a batch as an evaluation does, in a precision; gives the batch with the ground truth
that is scored, and maps by head."""


class _Stopped(Exception):
    """A process was asked to stop; all leave the validation together."""


def validate(
    state: TrainState,
    tasks: Mapping[str, Task],
    val: Validation,
    predict: Predict,
    log: MetricLogger,
    stop: Event,
    *,
    precision: Precision,
    multiple: int,
    eval_sources: Mapping[str, Collection[str]],
) -> Scores | None:
    """Return the scores of the model, of its moving average where there is one; None if `stop` was set meanwhile.

    Args:
        multiple: image sizes that the model takes are multiples of it.
        eval_sources: of a mixture, the data sets that each task is scored on; empty: all.
    """
    world, model = state.world, state.model
    rows: dict[str, dict[int, Any]] = {name: {} for name in tasks}
    sources: dict[int, str] = {}
    shown: set[str] = set()
    averages = state.ema.average if state.ema else {}
    buffers = [averages[name] for name, _ in model.named_buffers() if name in averages]
    world.broadcast([*state.running_statistics, *buffers])  # each process has its own
    model.eval()
    bar = tqdm(total=len(val), desc="validate", unit="image", leave=False, disable=not log.shows_bar, delay=1)
    try:
        averaged = state.ema.applied() if state.ema else nullcontext()
        with averaged, torch.no_grad(), gpu_products(tf32=precision == "tf32"), bar:
            for batch in synchronized_batches(val, world, stop):
                if batch is None:
                    dummy_forward(model, multiple, world, precision)
                    continue
                batch = batch.to(world.device)
                scored, predictions = predict(model, batch, precision)
                source = batch.sources[0] if batch.sources else ""  # a validation batch is of one data set
                sources |= dict.fromkeys(batch.indices, source)
                for name, task in tasks.items():
                    if source and eval_sources[name] and source not in eval_sources[name]:
                        continue
                    prediction = task.prediction(predictions)
                    rows[name] |= dict(zip(batch.indices, task.image_scores(prediction, scored), strict=True))
                    panel = f"panel/{source}/{name}" if source else f"panel/{name}"
                    if panel not in shown:
                        shown.add(panel)
                        log.image(panel, state.step, task.panel(prediction, batch))
                bar.update(len(batch))
    except _Stopped:
        return None
    return gather_scores(tasks, rows, sources, world)


def synchronized_batches(batches: Iterable[Batch], world: ProcessGroup, stop: Event) -> Iterator[Batch | None]:
    """Yield the batches of this process, then None until every process has had its last. Raises _Stopped: on all
    processes at once."""
    iterator = iter(batches)
    try:
        while True:
            batch = next(iterator, None)
            finished, stopping = world.all_reduce_flags(batch is None, stop.is_set())
            if stopping:
                raise _Stopped
            if finished:
                return
            yield batch
    finally:
        getattr(iterator, "close", lambda: None)()  # ends the loader's workers now


def dummy_forward(model: nn.Module, multiple: int, world: ProcessGroup, precision: Precision) -> None:
    """Run a forward pass of nothing: under FSDP every process must take part in each pass of the others."""
    if isinstance(model, FSDPModule):
        with autocast(precision, world.device):
            model(torch.zeros(1, 3, 4 * multiple, 4 * multiple, device=world.device))


def gather_scores(
    tasks: Mapping[str, Task],
    rows: Mapping[str, dict[int, Any]],
    sources: Mapping[int, str],
    world: ProcessGroup,
) -> Scores:
    """Return the scores of the data set from the scores of images by index, which are spread over the processes.

    Of a mixture, those of each of its data sets, as `source/...`.
    """
    source_of: dict[int, str] = {}
    for gathered in world.all_gather(dict(sources)):
        source_of |= gathered
    scores: Scores = {}
    for name, task in tasks.items():
        by_index: dict[int, Any] = {}
        for gathered_rows in world.all_gather(rows[name]):
            by_index |= gathered_rows
        by_source: dict[str, list[Any]] = {}
        for index in sorted(by_index):
            by_source.setdefault(source_of[index], []).append(by_index[index])
        for source, of_source in by_source.items():
            head = f"{name}/" if len(tasks) > 1 else ""
            prefix = f"{source}/{head}" if source else head
            scores |= {f"{prefix}{key}": value for key, value in task.dataset_scores(of_source).items()}
    return scores
