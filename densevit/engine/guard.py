"""The guard at each step: nothing that is not finite reaches the weights, their average or the norms' statistics."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from densevit.errors import Diverged

LIMITS = {"fp16": 12, "bf16": 3, "fp32": 3}
"""Bad steps in a row that are forgiven. Under fp16 a few are its way of finding the scale of the loss."""
HINTS = {"fp16": "try precision=bf16"}


class Statistics:
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


def check_patience(in_row: int, limit: int | None, step: int, precision: str) -> None:
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
