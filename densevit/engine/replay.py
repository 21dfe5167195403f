"""Does a recorded bad step again, on one process, and looks for where the first number went wrong."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from densevit.engine import seed, skipped_steps, train_state
from densevit.engine.interfaces import Batches
from densevit.engine.skipped_steps import StepRecord
from densevit.engine.trainer import Trainer
from densevit.errors import ConfigError
from densevit.weights import checkpoint


@dataclass(frozen=True)
class ReplayResult:
    """What was recorded of a step, what came now, and what was seen on the way.

    Attributes:
        modules: those whose output was not finite though their input was, in the order of the forward pass.
        gradients: parameters whose gradient is not finite.
    """

    step: int
    rank: int
    processes: int
    then: StepRecord
    now: StepRecord
    modules: Sequence[str] = field(default_factory=list)
    gradients: Sequence[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Bit for bit: the same images and losses, and where one process did the step alone, the same gradient."""
        pairs = [(self.then.losses[name], self.now.losses.get(name, 0.0)) for name in self.then.losses]
        if self.processes == 1:
            pairs.append((self.then.grad_norm, self.now.grad_norm))
        return self.then.names == self.now.names and all(_equal(*pair) for pair in pairs)


def replay(trainer: Trainer, folder: Path, rank: int, train: Callable[[int], Batches]) -> ReplayResult:
    """One step from the recorded weights, random states and place in the data.

    Args:
        rank: the process whose images are taken; `train` gives them.

    Raises:
        CheckpointError: no record, or of another model.
        ConfigError: no such process.
    """
    bad = skipped_steps.read(folder)
    if not 0 <= rank < len(bad.parts):
        raise ConfigError(f"--rank: {len(bad.parts)} processes took part, 0 to {len(bad.parts) - 1}; got {rank}.")
    weights, _ = checkpoint.read(folder)
    kept = checkpoint.read_state(folder)
    train_state.load(trainer.model, weights, folder)
    trainer.updates = kept["updates"]
    trainer.step, trainer.samples = bad.step - 1, bad.samples
    trainer.scaler.load_state_dict(kept["scaler"])
    trainer.balance.load_state_dict(kept["balance"])
    seed.set_random_state(kept["random"][rank], trainer.world.device)
    with closing(train(bad.samples)) as batches, watched(trainer.model) as modules:
        now = trainer.attempt(batches)
    return ReplayResult(bad.step, rank, len(bad.parts), bad.parts[rank], now, modules, broken_gradients(trainer.model))


@contextmanager
def watched(model: nn.Module) -> Iterator[list[str]]:
    """Yields a list to which a forward pass inside adds the modules that make the first numbers that are not finite."""
    found: list[str] = []

    def watch(name: str) -> Any:
        def look(module: nn.Module, given: Any, answer: Any) -> None:
            if name not in found and finite(given) and not finite(answer):
                found.append(name)

        return look

    hooks = [module.register_forward_hook(watch(name or "the model")) for name, module in model.named_modules()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def finite(tree: Any) -> bool:
    """Whether all numbers in it are, however tensors are nested."""
    if isinstance(tree, Tensor):
        return not tree.is_floating_point() or bool(torch.isfinite(tree).all())
    if isinstance(tree, Mapping):
        return all(map(finite, tree.values()))
    if isinstance(tree, list | tuple):
        return all(map(finite, tree))
    return finite(vars(tree)) if hasattr(tree, "__dataclass_fields__") else True


def broken_gradients(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if p.grad is not None and not finite(p.grad)]


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


if TYPE_CHECKING:
    from densevit.engine.trainer import Trainer
