"""The processes of one job: which one this is, and how they exchange Python objects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

T = TypeVar("T")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ProcessGroup:
    """This process among all; by default it is the only one."""

    device: torch.device = CPU
    rank: int = 0
    size: int = 1
    objects: dist.ProcessGroup | None = None  # whose timeout lets one process work alone for long; None is the default

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def all_gather(self, value: Any) -> list[Any]:
        """Return the value of each process, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.objects)
        return values

    def on_all(self, work: Callable[[], T]) -> list[T]:
        """Run `work` on every process and return all results by rank; the first error is raised on all of them."""
        value: tuple[T, ...] = ()
        error: Exception | None = None
        try:
            value = (work(),)
        except Exception as caught:
            error = caught
        results = self.all_gather((value, error))
        for _, error in results:
            if error is not None:
                raise error
        return [value[0] for value, _ in results]

    def on_main(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0 and return its result on every process; its error is raised on all of them."""
        return self.on_all(work if self.is_main else cast(Callable[[], T], lambda: None))[0]


ALONE = ProcessGroup()
