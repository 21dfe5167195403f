"""Parts of a model that change over a run by themselves, such as attention whose masks fade away."""

from typing import Protocol, runtime_checkable

from torch import nn


@runtime_checkable
class Scheduled(Protocol):
    def at_progress(self, share: float) -> None:
        """`share` of the run's steps that is done, from 0 to 1."""


def scheduled_parts(model: nn.Module) -> list[Scheduled]:
    """Nothing of them is saved: a resumed run tells them anew."""
    return [module for module in model.modules() if isinstance(module, Scheduled)]
