"""How masked attention fades away over a training run (EoMT, Kerssies et al. 2025)."""

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError

Share = Annotated[float, Field(ge=0, le=1)]
Span = tuple[Share, Share]
POWER = 0.9


def one_after_another(blocks: int) -> tuple[Span, ...]:
    """A time without change at the start and at the end, and in between each block after its predecessor.

    For four blocks 1/6 to 2/6, ..., 4/6 to 5/6 of the run: EoMT's steps on ADE20K and Cityscapes, rounded.
    """
    parts = blocks + 2
    return tuple(((i + 1) / parts, (i + 2) / parts) for i in range(blocks))


class Annealing(nn.Module):
    """The share of queries that are masked, block by block: 1 before a block's span, 0 behind it.

    Attributes:
        progress: share of the run that is done, as `at_progress` was told. It is a tensor, lest compiled models take
            every step for a new program.
    """

    progress: Tensor
    spans: Tensor

    def __init__(self, blocks: int, spans: tuple[Span, ...] | None = None) -> None:
        """
        Raises:
            ConfigError: more or fewer spans than blocks, or one that ends before it begins.
        """
        super().__init__()
        spans = one_after_another(blocks) if spans is None else spans
        if len(spans) != blocks:
            raise ConfigError(f"decoder.anneal: {len(spans)} spans for {blocks} blocks.")
        if any(begin > end for begin, end in spans):
            raise ConfigError(f"decoder.anneal: a span ends before it begins, in {[list(span) for span in spans]}.")
        self.register_buffer("spans", torch.tensor(spans), persistent=False)
        self.register_buffer("progress", torch.zeros(()), persistent=False)

    def at_progress(self, share: float) -> None:
        """`share` of the training run that is done; the trainer calls it before each step."""
        self.progress.fill_(share)

    def share(self, block: int) -> Float[Tensor, ""]:
        begin, end = self.spans[block]
        done = ((self.progress - begin) / (end - begin).clamp_min(1e-9)).clamp(0, 1)
        return (1 - done) ** POWER
