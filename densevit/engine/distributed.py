"""Processes: torchrun's environment, the device of each, and the few agreements that training needs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from densevit.ops.device import choose_device


@dataclass(frozen=True)
class World:
    """This process among all."""

    device: torch.device
    rank: int = 0
    size: int = 1
    local_size: int = 1  # processes on this machine, which share its cores

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def agree(self, good: bool, stop: bool = False) -> tuple[bool, bool]:
        """Whether all processes are good, and whether any wants to stop; the same answer on each."""
        if self.size == 1:
            return good, stop
        votes = torch.tensor([not good, stop], dtype=torch.int32, device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        bad, stopped = votes.tolist()
        return not bad, bool(stopped)

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Each value averaged over the processes; all must name the same."""
        if self.size == 1:
            return values
        summed = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        return dict(zip(values, (summed / self.size).tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """What each process gave, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def run_on_main(self, work: Any) -> None:
        """Calls `work` on rank 0; if it fails there, every process raises, so that none waits for ever."""
        error: Exception | None = None
        if self.is_main:
            try:
                work()
            except Exception as caught:
                error = caught
        raised = next((e for e in self.gather(error) if e is not None), None)
        if raised is not None:
            raise raised

    def parallel(self, model: nn.Module) -> nn.Module:
        """The model as each process trains it: gradients averaged over all."""
        if self.size == 1:
            return model
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=ids)


@contextmanager
def session(device: str = "auto") -> Iterator[World]:
    """The process group that torchrun asks for, or a world of one."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    chosen = choose_device(device)
    if chosen.type == "cuda":
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        chosen = choose_device(f"cuda:{local_rank if chosen.index is None else chosen.index}")
        torch.cuda.set_device(chosen)
    if size == 1:
        yield World(chosen)
        return
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=10))
    try:
        yield World(chosen, rank, size, int(os.environ.get("LOCAL_WORLD_SIZE", size)))
    finally:
        dist.destroy_process_group()
