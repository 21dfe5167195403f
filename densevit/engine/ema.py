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
        parameters, current = dict(model.named_parameters()), model.state_dict(keep_vars=True)
        self.averaged = [name for name in self.average if name in parameters]
        self.copied = [name for name in self.average if name not in parameters]
        self.current = [current[name] for name in (*self.averaged, *self.copied)]

    @torch.no_grad()
    def update(self, updates: int) -> None:
        decay = min(self.decay, (1 + updates) / (10 + updates))
        weights, buffers = self.current[: len(self.averaged)], self.current[len(self.averaged) :]
        averages = [local(self.average[name]) for name in self.averaged]
        torch._foreach_lerp_(averages, [local(weight.detach()) for weight in weights], 1 - decay)
        for name, buffer in zip(self.copied, buffers, strict=True):
            self.average[name].copy_(buffer)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the averaged weights."""
        trained = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        try:
            yield
        finally:
            self.model.load_state_dict(trained)

    @torch.no_grad()
    def copy_from(self, model: nn.Module, module: nn.Module) -> None:
        """Takes the weights of a module of the model as they are, in place of their average."""
        module_ids = {id(value) for value in module.state_dict(keep_vars=True).values()}
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) in module_ids:
                self.average[name].copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        return self.average

    def load_state_dict(self, average: dict[str, Tensor]) -> None:
        for name, value in average.items():
            self.average[name].copy_(distribute_like(value, self.average[name]))
