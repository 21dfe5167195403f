"""A moving average of the weights, which usually scores better than the weights themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class EMA:
    """average <- decay * average + (1 - decay) * weights, after each real step.

    Early on the decay is (1 + n) / (10 + n), so that the average forgets the initialisation (as in TensorFlow's).
    Buffers are copied, not averaged.
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
        torch._foreach_lerp_([self.average[n] for n in floats], [parameters[n].detach() for n in floats], 1 - decay)
        for name, buffer in self.model.state_dict().items():
            if name not in parameters:
                self.average[name].copy_(buffer)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model computes with the average."""
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
            self.average[name].copy_(value)
