"""Warnings and errors of a training in progress: loss spikes, saturated outputs, skipped steps, too little memory."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.config.schema import Run
from densevit.errors import ConfigError, Diverged
from densevit.utils.device import is_out_of_memory
from densevit.utils.process import ProcessGroup


class LossSpikeMonitor:
    """Warns of a loss that lies further over the median of the last ones than `factor` times any of them.

    Attributes:
        count: spikes so far.
    """

    def __init__(self, factor: float = 5.0, window: int = 50, least: int = 10) -> None:
        self.factor, self.least = factor, least
        self.recent: deque[float] = deque(maxlen=window)
        self.count = 0
        self.in_row = 0

    def __call__(self, loss: float) -> str | None:
        """The warning about this loss, if any."""
        usual = median(self.recent) if self.recent else 0.0
        reach = max([x - usual for x in self.recent] + [abs(usual) / 10])
        if len(self.recent) < self.least or loss <= usual + self.factor * reach or self.in_row >= self.least:
            self.recent.append(loss)
            self.in_row = 0
            return None
        self.count += 1
        self.in_row += 1
        return f"the loss is {loss:.4g}, where {usual:.4g} was usual"


class OutputSaturationMonitor:
    """Warns once of a head whose output lies at one end of its range, several times in a row.

    Args:
        ranges: the values that each head can give; None where they are not limited.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float] | None], share: float = 0.99, times: int = 3) -> None:
        self.ranges = {head: limits for head, limits in ranges.items() if limits is not None}
        self.share, self.times = share, times
        self.in_row = dict.fromkeys(self.ranges, 0)

    def __call__(self, predictions: Mapping[str, Tensor]) -> Iterator[str]:
        """Yield the warnings about these predictions."""
        for head in self.ranges.keys() & predictions.keys():
            if warning := self._check(head, predictions[head].detach().float()):
                yield warning

    def _check(self, head: str, values: Float[Tensor, "b ..."]) -> str | None:
        lower, upper = self.ranges[head]
        margin = 1e-3 * (upper - lower)
        ends = torch.stack([(values < lower + margin).float().mean(), (values > upper - margin).float().mean()])
        low, high = ends.tolist()
        self.in_row[head] = self.in_row[head] + 1 if max(low, high) >= self.share else 0
        if self.in_row[head] != self.times:
            return None
        end, share = ("lower", low) if low > high else ("upper", high)
        return (
            f"{share:.1%} of the predictions lie at the {end} end of the head's range ({lower:g} to {upper:g}): "
            "it has saturated and learns no more. Is the ground truth in the range's unit, and optim.lr low enough?"
        )


MAX_SKIPPED = {"fp16": 12, "bf16": 3, "tf32": 3, "fp32": 3}
"""Skipped steps in a row before a run ends. Under fp16 a few are normal: they find the scale of the loss."""
HINTS = {"fp16": "try precision=bf16"}


def check_max_skipped(in_row: int, limit: int | None, step: int, precision: str) -> None:
    """Raises Diverged: more skipped steps in a row than the limit."""
    if in_row > (limit or MAX_SKIPPED[precision]):
        hint = HINTS.get(precision, "try a lower optim.lr or a longer schedule.warmup")
        raise Diverged(
            f"{in_row} steps in a row were not finite, the last at step {step}; {hint}, "
            "and look at the images named above. The last good checkpoint is kept."
        )


def first_names(names: Sequence[str]) -> str:
    """The first eight of them."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


GB = 2**30
SPARE = 0.9  # share of the memory that tensors can fill before fragments of it are of no use


@contextmanager
def explain_out_of_memory(run: Run, world: ProcessGroup) -> Iterator[None]:
    """Raises ConfigError: the step inside does not fit into memory; which options to change, and to what."""
    cuda = world.device.type == "cuda"
    fixed = 0
    if cuda:
        torch.cuda.reset_peak_memory_stats(world.device)
        fixed = torch.cuda.memory_allocated(world.device)
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        total = used = 0
        if cuda:
            total = torch.cuda.get_device_properties(world.device).total_memory
            used = torch.cuda.max_memory_allocated(world.device)
        raise ConfigError(memory_advice(run, world.size, total=total, fixed=fixed, used=used)) from error


def memory_advice(run: Run, processes: int, *, total: int, fixed: int, used: int) -> str:
    """What to change so that a step fits.

    Args:
        total: bytes of the device; 0 where they are not known.
        fixed: bytes before the step: weights, moments of the optimiser.
        used: most bytes in the step, up to where it failed.
    """
    share = run.batch_size // processes
    images = share // run.grad_accum_steps
    said = f"a step of {images} images at once does not fit into memory"
    if total:
        said += f" ({total / GB:.1f} GB; {fixed / GB:.1f} before the step, {used / GB:.1f} when it ran out)"
    options = []
    if images > 1:
        # The step may have needed far more than it got to, so at most half as many.
        each = max(1, used - fixed) / images
        fitting = min(images // 2, int((SPARE * total - fixed) / each)) if total else images // 2
        fewer = max(n for n in range(1, max(1, fitting) + 1) if share % n == 0)
        options.append(
            f"grad_accum_steps={share // fewer} ({fewer} images at once, the same step but for batch norm and what "
            "docs/scale.md lists)"
        )
    if not run.model.grad_checkpointing:
        options.append("model.grad_checkpointing=true (the encoder's blocks twice: about a third more time)")
    if images > 1:
        options.append(f"batch_size={processes * run.grad_accum_steps * fewer} (another training)")
    if processes > 1 and run.parallel == "ddp":
        options.append("parallel=fsdp (weights and moments shared out over the processes)")
    tried = "; or ".join(options) or "a smaller model, or smaller crops in data.transforms"
    return f"{said}. Take {tried}."
