"""Exponential moving average (EMA) of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from densevit.engine.fsdp import distribute_like, local


class EMA:
    """average <- decay * average + (1 - decay) * weights, after each step that was not skipped.

    In the first steps the decay is (1 + n) / (10 + n), so that the average forgets the initialisation, as in
    TensorFlow. Buffers are copied, not averaged. Of a sharded model each process averages its shard.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.average = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        decay = min(self.decay, (1 + updates) / (10 + updates))
        parameters = dict(self.model.named_parameters())
        floats = [name for name in self.average if name in parameters]
        averages = [local(self.average[name]) for name in floats]
        torch._foreach_lerp_(averages, [local(parameters[name].detach()) for name in floats], 1 - decay)
        for name, buffer in self.model.state_dict().items():
            if name not in parameters:
                self.average[name].copy_(buffer)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the averaged weights."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def state_dict(self) -> dict[str, Tensor]:
        return self.average

    def load_state_dict(self, average: dict[str, Tensor]) -> None:
        for name, value in average.items():
            self.average[name].copy_(distribute_like(value, self.average[name]))
