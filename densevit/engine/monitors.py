"""What a person would notice in the curves, said while it can still be mended. Alarms change nothing."""

from collections import deque
from collections.abc import Sequence
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from densevit.errors import Diverged


class LossSpikeMonitor:
    """Tells losses that leave their usual course: further over the median than `factor` times any of the last ones.

    Attributes:
        count: spikes so far.
    """

    def __init__(self, factor: float = 5.0, window: int = 50, least: int = 10) -> None:
        self.factor, self.least = factor, least
        self.usual: deque[float] = deque(maxlen=window)
        self.count = 0
        self.in_row = 0

    def __call__(self, loss: float) -> str | None:
        """What to say of this loss, if anything."""
        usual = median(self.usual) if self.usual else 0.0
        reach = max([x - usual for x in self.usual] + [abs(usual) / 10])
        if len(self.usual) < self.least or loss <= usual + self.factor * reach or self.in_row >= self.least:
            self.usual.append(loss)
            self.in_row = 0
            return None
        self.count += 1
        self.in_row += 1
        return f"the loss is {loss:.4g}, where {usual:.4g} was usual"


class OutputSaturationMonitor:
    """Tells a head that gives little but the ends of its range, several looks in a row; once.

    Args:
        range: the values the head can give.
    """

    def __init__(self, range: tuple[float, float], share: float = 0.99, looks: int = 3) -> None:
        self.low, self.high = range
        self.share, self.looks = share, looks
        self.in_row = 0

    def __call__(self, prediction: Float[Tensor, "b ..."]) -> str | None:
        """What to say of these predictions, if anything."""
        margin = 1e-3 * (self.high - self.low)
        values = prediction.detach().float()
        ends = torch.stack([(values < self.low + margin).float().mean(), (values > self.high - margin).float().mean()])
        low, high = ends.tolist()
        self.in_row = self.in_row + 1 if max(low, high) >= self.share else 0
        if self.in_row != self.looks:
            return None
        end, share = ("lower", low) if low > high else ("upper", high)
        return (
            f"{share:.1%} of the predictions lie at the {end} end of the head's range ({self.low:g} to {self.high:g}): "
            "it has saturated and learns no more. Is the truth in the unit of the range, and optim.lr not too high?"
        )


LIMITS = {"fp16": 12, "bf16": 3, "fp32": 3}
"""Bad steps in a row that are forgiven. Under fp16 a few are its way of finding the scale of the loss."""
HINTS = {"fp16": "try precision=bf16"}


class BatchNormSnapshot:
    """What a forward pass changes in a model: the running means of BatchNorm; they can be put back."""

    def __init__(self, model: nn.Module) -> None:
        norms = [module for module in model.modules() if isinstance(module, _NormBase)]
        self.running = [buffer for norm in norms for buffer in norm.buffers()]
        self.kept: Sequence[Tensor] = []

    def keep(self) -> None:
        self.kept = [buffer.clone() for buffer in self.running]

    @torch.no_grad()
    def put_back(self) -> None:
        for buffer, kept in zip(self.running, self.kept, strict=True):
            buffer.copy_(kept)


def check_max_skipped(in_row: int, limit: int | None, step: int, precision: str) -> None:
    """
    Raises:
        Diverged: more bad steps in a row than the limit.
    """
    if in_row > (limit or LIMITS[precision]):
        hint = HINTS.get(precision, "try a lower optim.lr or a longer schedule.warmup")
        raise Diverged(
            f"{in_row} steps in a row were not finite, the last at step {step}; {hint}, "
            "and look at the images named above. The last good checkpoint is kept."
        )


def shown(names: Sequence[str]) -> str:
    """The first eight."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
