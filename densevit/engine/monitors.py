"""Warnings about a training in progress: loss spikes, saturated outputs, too many skipped steps."""

from collections import deque
from collections.abc import Sequence
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.errors import Diverged


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
        range: the values the head can give.
    """

    def __init__(self, range: tuple[float, float], share: float = 0.99, times: int = 3) -> None:
        self.low, self.high = range
        self.share, self.times = share, times
        self.in_row = 0

    def __call__(self, prediction: Float[Tensor, "b ..."]) -> str | None:
        """The warning about these predictions, if any."""
        margin = 1e-3 * (self.high - self.low)
        values = prediction.detach().float()
        ends = torch.stack([(values < self.low + margin).float().mean(), (values > self.high - margin).float().mean()])
        low, high = ends.tolist()
        self.in_row = self.in_row + 1 if max(low, high) >= self.share else 0
        if self.in_row != self.times:
            return None
        end, share = ("lower", low) if low > high else ("upper", high)
        return (
            f"{share:.1%} of the predictions lie at the {end} end of the head's range ({self.low:g} to {self.high:g}): "
            "it has saturated and learns no more. Is the ground truth in the range's unit, and optim.lr low enough?"
        )


MAX_SKIPPED = {"fp16": 12, "bf16": 3, "tf32": 3, "fp32": 3}
"""Skipped steps in a row before a run ends. Under fp16 a few are normal: they find the scale of the loss."""
HINTS = {"fp16": "try precision=bf16"}


def check_max_skipped(in_row: int, limit: int | None, step: int, precision: str) -> None:
    """
    Raises:
        Diverged: more skipped steps in a row than the limit.
    """
    if in_row > (limit or MAX_SKIPPED[precision]):
        hint = HINTS.get(precision, "try a lower optim.lr or a longer schedule.warmup")
        raise Diverged(
            f"{in_row} steps in a row were not finite, the last at step {step}; {hint}, "
            "and look at the images named above. The last good checkpoint is kept."
        )


def first_names(names: Sequence[str]) -> str:
    """The first eight of them."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
