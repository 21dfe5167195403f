"""Sums over all images of a step, of which losses over the batch are functions.

A loss that pools the pixels of a batch is f(s), and s are sums over pixels. It is the same loss with the same gradient
however the step is split over micro-batches and processes, if every part computes f of the whole step's s and sends
gradients to its own pixels. Losses call the functions below; outside of a split step they change nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


class StepTotals:
    """The sums of a step.

    Args:
        micro_batches, processes: over which its images are split evenly.
        all_reduce: sums a tensor over the processes, in place.
    """

    def __init__(self, micro_batches: int, processes: int, all_reduce: Callable[[Tensor], Tensor]) -> None:
        self.ahead, self.parts = micro_batches > 1, micro_batches * processes
        self.all_reduce = all_reduce
        self.totals: list[Tensor] = []
        self.position = 0
        self.counting = False

    @contextmanager
    def count(self) -> Iterator[None]:
        """Only sum inside, over the micro-batches of this process, and at the end over the processes."""
        self.totals, self.counting = [], True
        try:
            yield
        finally:
            self.counting = False
        if self.totals:
            summed = self.all_reduce(torch.cat([total.flatten() for total in self.totals]))
            sizes = [total.numel() for total in self.totals]
            pairs = zip(torch.split(summed, sizes), self.totals, strict=True)
            self.totals = [part.view_as(total) for part, total in pairs]

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Losses inside are those of one micro-batch; all of a step call for the same sums in the same order."""
        self.position = 0
        token = _step.set(self if self.parts > 1 else None)
        try:
            yield
        finally:
            _step.reset(token)

    def __call__(self, local: Tensor) -> Tensor:
        """Return the step's sums; their gradient is `parts` times that of the local ones, since parts are averaged."""
        position, self.position = self.position, self.position + 1
        wide = _wide(local)
        if self.counting:
            if position == len(self.totals):
                self.totals.append(torch.zeros_like(wide))
            self.totals[position] += wide.detach()
            return wide
        total = self.totals[position] if self.ahead else self.all_reduce(wide.detach().clone())
        return total + self.parts * (wide - wide.detach())


_step: ContextVar[StepTotals | None] = ContextVar("step_totals", default=None)


def over_step(sums: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return sums over the images of a loss as sums over those of its step, in double precision where it is split."""
    step = _step.get()
    return sums if step is None else step(sums)


def mean_over_step(total: Float[Tensor, "..."], count: Shaped[Tensor, "..."], least: float = 1) -> Float[Tensor, "..."]:
    """Return total / count, whose mean over the parts of a step is that of the whole step.

    Args:
        count: of what the ground truth has, whatever is predicted; at least `least`.
    """
    step = _step.get()
    if step is None:
        return total / count.clamp_min(least)
    return step.parts * total / step(count).clamp_min(least).to(total.dtype)


def over_step_centred(
    n: Shaped[Tensor, "..."], mean: Float[Tensor, "..."], squares: Float[Tensor, "..."]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return count, mean and sum of squared deviations from the mean over the images of the step."""
    if _step.get() is None:
        return n, mean, squares
    n, mean, squares = map(_wide, (n, mean, squares))  # before they are multiplied: what is left is a small difference
    count, total, raw = over_step(torch.stack([n, n * mean, squares + n * mean.square()]))
    mean = total / count.clamp_min(1)
    return count, mean, (raw - count * mean.square()).clamp_min(0)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)
