"""The losses of each data set of a mixture, for the logs: means over its images in one step, of all processes."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from densevit.structures import Batch
from densevit.tasks.base import Task


class SourceLosses:
    """Sums of the losses of the images of each data set, and their numbers, until `means`.

    Args:
        tasks: by head; with several, columns are `source/head/loss`, with one `source/loss`.
    """

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self.several = len(tasks) > 1
        self.columns = [
            self._column(source, head, loss)
            for head, task in tasks.items()
            for source in task.sources
            for loss in dict.fromkeys(name for name, _ in task.weights)
        ]
        self.clear()

    def clear(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = dict.fromkeys(self.columns, 0)

    def add(self, head: str, found: Mapping[str, Mapping[str, Tensor]], batch: Batch) -> None:
        """Counts what `Task.losses_by_source` found in a batch."""
        for source, rows in batch.by_source().items():
            losses = found.get(source, {})
            for loss, value in losses.items():
                column = self._column(source, head, loss)
                if column in self.counts:
                    self.sums[column] = self.sums.get(column, 0) + len(rows) * value.detach().float()
                    self.counts[column] += len(rows)

    def means(self, all_reduce_mean: Callable[[dict[str, float]], dict[str, float]]) -> dict[str, float | None]:
        """The mean of each column; None where no process had an image of it. All processes must call it together."""
        sums = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        found = dict(zip(self.sums, sums, strict=True))
        total = all_reduce_mean({column: found.get(column, 0.0) for column in self.columns})
        count = all_reduce_mean({column: float(n) for column, n in self.counts.items()})
        return {column: total[column] / count[column] if count[column] else None for column in self.columns}

    def _column(self, source: str, head: str, loss: str) -> str:
        return f"{source}/{head}/{loss}" if self.several else f"{source}/{loss}"
