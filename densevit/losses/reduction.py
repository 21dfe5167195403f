"""Masks, precision and averages of losses over valid pixels, and sums over all images of a step.

A loss that pools the pixels of a batch is f(s), and s are sums over pixels. It is the same loss with the same gradient
however the step is split over micro-batches and processes, if every part computes f of the whole step's s and sends
gradients to its own pixels. `over_step` and `mean_over_step` do that; outside of a split step they change nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Shaped
from pydantic import Field
from torch import Tensor, nn


class StepTotals:
    """The sums of a step.

    Args:
        micro_batches, processes: over which its images are split evenly.
        all_reduce: sums a tensor over the processes, in place.
    """

    def __init__(self, micro_batches: int, processes: int, all_reduce: Callable[[Tensor], Tensor]) -> None:
        self.ahead, self.splits = micro_batches > 1, micro_batches * processes
        self.all_reduce = all_reduce
        self.totals: list[Tensor] = []
        self.position = 0
        self.counting = False

    @contextmanager
    def count(self) -> Iterator[None]:
        """Sum only, inside the block, over the micro-batches of this process, and at the end over the processes."""
        self.totals, self.counting = [], True
        try:
            yield
        finally:
            self.counting = False
        if self.totals:
            summed = self.all_reduce(torch.cat([total.flatten() for total in self.totals]))
            sizes = [total.numel() for total in self.totals]
            pairs = zip(torch.split(summed, sizes), self.totals, strict=True)
            self.totals = [total_sum.view_as(total) for total_sum, total in pairs]

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Compute the losses of one micro-batch inside; those of a step ask for the same sums in the same order."""
        self.position = 0
        token = _step.set(self if self.splits > 1 else None)
        try:
            yield
        finally:
            _step.reset(token)

    def __call__(self, local: Tensor) -> Tensor:
        """Return the step's sums; their gradient is `splits` times that of the local ones, which are averaged."""
        position, self.position = self.position, self.position + 1
        wide = _wide(local)
        if self.counting:
            if position == len(self.totals):
                self.totals.append(torch.zeros_like(wide))
            self.totals[position] += wide.detach()
            return wide
        total = self.totals[position] if self.ahead else self.all_reduce(wide.detach().clone())
        return total + self.splits * (wide - wide.detach())


_step: ContextVar[StepTotals | None] = ContextVar("step_totals", default=None)


def over_step(sums: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return sums over the images of a loss as sums over those of its step, in double precision where it is split."""
    step = _step.get()
    return sums if step is None else step(sums)


def mean_over_step(total: Float[Tensor, "..."], count: Shaped[Tensor, "..."], least: float = 1) -> Float[Tensor, "..."]:
    """Return total / count, whose mean over the splits of a step is that of the whole step. `count`: of what the ground
    truth has, whatever is predicted; at least `least`."""
    step = _step.get()
    if step is None:
        return total / count.clamp_min(least)
    return step.splits * total / step(count).clamp_min(least).to(total.dtype)


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


Depth: TypeAlias = Float[Tensor, "b 1 h w"]  # metres, unless a loss says otherwise
Valid: TypeAlias = Bool[Tensor, "b 1 h w"]
Scalar: TypeAlias = Float[Tensor, ""]

Eps = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Pool = Annotated[
    Literal["image", "batch", "micro_batch"],
    Field(description="which pixels become one number: those of an image (then their mean), a step, or a micro-batch"),
]
"""How the pixels of a batch become one number.

image: a value per image, then their mean; an image without ground truth counts as 0. The gradient of an image does not
depend on the others, so it is the same however a batch is split over processes or accumulation steps.
batch: the measured pixels of all images of the step as if they were one image. Sums go over all micro-batches and
processes (losses.step_totals), so that this gradient does not depend on the split, either.
micro_batch: those of the images that one process computes at once, as most published codes do on several GPUs.
"""


class PooledLoss(nn.Module):
    """What a training needs to know of a loss before its first micro-batch.

    Attributes:
        pool: which images it is computed of; of a step's it takes sums (losses.step_totals).
        sums_predictions: whether these depend on predictions, and not on the ground truth alone.
    """

    pool: Pool = "micro_batch"
    sums_predictions: ClassVar[bool] = False


MIN_DEPTH = 1e-3
"""Metres; predictions are clamped here before a logarithm, as `min_depth` of every published protocol."""


def measured(pred: Depth, target: Depth, valid: Valid) -> tuple[Depth, Depth, Valid]:
    """Return the prediction and ground truth in fp32 or fp64, both 1 where nothing was measured, and the mask of what
    was.

    A pixel counts where it is valid and its ground truth finite and positive. The others are replaced, not multiplied
    by 0: 0 * NaN is NaN, and so is its gradient. Depth squared or summed over an image overflows half precision. A NaN
    prediction stays NaN, so that the trainer skips the step.
    """
    mask = valid & target.isfinite() & (target > 0)
    full = torch.promote_types(pred.dtype, torch.float32)
    return torch.where(mask, pred.to(full), 1.0), torch.where(mask, target.to(full), 1.0), mask


def log_ratio(pred: Depth, target: Depth, valid: Valid, eps: float = 0.0) -> tuple[Depth, Valid]:
    """Return ln((pred + eps) / (target + eps)), 0 where nothing was measured, and the mask.

    Without `eps`, predictions are clamped at `MIN_DEPTH`.
    """
    pred, target, mask = measured(pred, target, valid)
    pred = pred.clamp_min(0.0 if eps else MIN_DEPTH)
    return (pred + eps).log() - (target + eps).log(), mask


def rows(pixels: Shaped[Tensor, "b 1 h w"], pool: Pool) -> Shaped[Tensor, "n p"]:
    """Return one row of pixels for each value that the loss is the mean of: of an image, or of all."""
    return pixels.flatten(1) if pool == "image" else pixels.reshape(1, -1)


def masked_mean(errors: Depth, mask: Valid, pool: Pool) -> Scalar:
    """Return the mean of errors that are 0 outside the mask; 0, attached to the graph, where the mask is empty."""
    return pooled_mean(rows(errors, pool).sum(1), rows(mask, pool).sum(1), pool)


def pooled_mean(total: Float[Tensor, " n"], count: Shaped[Tensor, " n"], pool: Pool) -> Scalar:
    """Return the mean of the means of the rows, 0 for one without pixels."""
    return (mean_over_step(total, count) if pool == "batch" else total / count.clamp_min(1)).mean()


def best_pixels(errors: Float[Tensor, "b *h_w"], mask: Bool[Tensor, "b *h_w"], share: float) -> Bool[Tensor, "b *h_w"]:
    """Return the mask without the `share` of each image's pixels whose error is largest (Depth Anything V2: a
    tenth)."""
    rows = torch.where(mask, errors.float(), -torch.inf).flatten(1)
    dropped = (mask.flatten(1).sum(1, keepdim=True) * share).long()
    rank = rows.argsort(dim=1, descending=True, stable=True).argsort(1)
    inliers: Bool[Tensor, b * h_w] = mask & (rank >= dropped).view_as(mask)
    return inliers
