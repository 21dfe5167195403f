"""The processes of one job, by torchrun's environment: which one this is, and what they exchange."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from densevit.utils.device import choose_device, device_of_process

T = TypeVar("T")
CPU = torch.device("cpu")
TIMEOUT = timedelta(minutes=10)  # of one collective of tensors
PATIENCE = timedelta(hours=2)  # with what one process does alone, saving a large model for example


@dataclass(frozen=True)
class ProcessGroup:
    """This process among all; by default it is the only one."""

    device: torch.device = CPU
    rank: int = 0
    size: int = 1
    local_size: int = 1  # processes on this machine, which share its cores
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

    def all_reduce_flags(self, ok: bool, stop: bool = False) -> tuple[bool, bool]:
        """Return whether all processes are ok, and whether any is to stop; the same on each."""
        if self.size == 1:
            return ok, stop
        flags = torch.tensor([not ok, stop], dtype=torch.int32, device=self.device)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        any_failed, any_stop = flags.tolist()
        return not any_failed, bool(any_stop)

    def all_reduce_max(self, values: Tensor) -> Tensor:
        """Return the largest of all processes, element by element and in place; the host does not wait for it."""
        if self.size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, element by element and in place; the host does not wait for it."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def all_reduce_mean(self, values: dict[str, float]) -> dict[str, float]:
        """Return each value averaged over the processes; all must name the same."""
        if self.size == 1:
            return values
        summed = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        return dict(zip(values, (summed / self.size).tolist(), strict=True))

    def all_reduce_gradients(self, module: nn.Module) -> None:
        """Average the gradients of a module that is not part of the parallel model."""
        if self.size > 1:
            for parameter in filter(lambda p: p.requires_grad, module.parameters()):
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(gradient)
                parameter.grad = gradient / self.size

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copy rank 0's values to every process, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def background(self) -> "ProcessGroup":
        """Return the same processes with a group of their own, for what a thread exchanges; all must call it
        together."""
        if self.size == 1:
            return self
        return replace(self, objects=cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=PATIENCE)))


ALONE = ProcessGroup()


@contextmanager
def process_group(device: str = "auto", patience: timedelta = PATIENCE) -> Iterator[ProcessGroup]:
    """Join the process group that torchrun describes; alone without torchrun. Raises ConfigError: no such device here,
    or one GPU for several processes. `patience`: of the processes with what one of them does alone."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    # Named before anything touches a device: each process would otherwise take half a gigabyte of the first GPU.
    local_device = choose_device(device_of_process(device, int(os.environ.get("LOCAL_RANK", 0)), local_size))
    cuda = local_device.type == "cuda"
    if cuda:
        torch.cuda.set_device(local_device)
    if size == 1:
        yield ProcessGroup(local_device)
        return
    store, _, _ = next(iter(rendezvous("env://", timeout=TIMEOUT)))
    if local_size == size:
        # torchrun gives restarted processes the store of the dead ones, with their addresses in it (pytorch#135712).
        # On one machine all know the number of the restart; for several see docs/scale.md.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
        device_id=local_device if cuda else None,  # NCCL connects now, and reports its errors now
    )
    try:
        objects = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=patience))
        yield ProcessGroup(local_device, rank, size, local_size, objects)
    finally:
        dist.destroy_process_group()
