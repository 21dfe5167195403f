"""Runs a recorded step again, on one process, and finds where the first non-finite number came from."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from densevit.engine import skipped_steps
from densevit.engine.interfaces import Batches
from densevit.engine.skipped_steps import StepRecord, StepTensors
from densevit.engine.train_state import TrainState, load_weights
from densevit.errors import ConfigError
from densevit.utils import seed
from densevit.weights import checkpoint


@dataclass(frozen=True)
class ReplayResult:
    """A step as it was recorded (`then`) and as it came out now."""

    step: int
    rank: int
    processes: int
    then: StepRecord
    now: StepRecord
    # those with finite input and non-finite output, in the order of the forward pass
    modules: Sequence[str] = field(default_factory=list)
    gradients: Sequence[str] = field(default_factory=list)  # parameters whose gradient is not finite

    @property
    def same(self) -> bool:
        """Whether images and losses are equal bit for bit, and in a run of one process the gradient norm, too."""
        pairs = [(self.then.losses[name], self.now.losses.get(name, 0.0)) for name in self.then.losses]
        if self.processes == 1:
            pairs.append((self.then.grad_norm, self.now.grad_norm))
        return self.then.names == self.now.names and all(_equal(*pair) for pair in pairs)


def replay(
    state: TrainState,
    step: Callable[[Batches], StepTensors],
    train: Callable[[int], Batches],
    folder: Path,
    rank: int,
) -> ReplayResult:
    """Runs a step from its recorded weights, random states and position in the data. Raises CheckpointError: no record,
    or of another model. Raises ConfigError: no such process. `step`: `Trainer.forward_backward_step` of the trainer
    that owns `state`; `rank`: the process whose images are taken; `train` gives them."""
    skipped = skipped_steps.read(folder)
    if not 0 <= rank < len(skipped.parts):
        raise ConfigError(
            f"--rank: {len(skipped.parts)} processes took part, 0 to {len(skipped.parts) - 1}; got {rank}."
        )
    saved = checkpoint.read_state(folder)
    load_weights(state.model, saved["weights"], folder)
    state.step, state.samples, state.updates = skipped.step - 1, skipped.samples, saved["updates"]
    state.scaler.load_state_dict(saved["scaler"])
    state.objective.load_state_dict(saved["objective"])
    seed.set_random_state(saved["random"][rank], state.world.device)
    with closing(train(skipped.samples)) as batches, non_finite_modules(state.model) as modules:
        tensors = step(batches)
        now = tensors.record(tensors.numbers().tolist())
    return ReplayResult(
        skipped.step, rank, len(skipped.parts), skipped.parts[rank], now, modules, non_finite_gradients(state.model)
    )


@contextmanager
def non_finite_modules(model: nn.Module) -> Iterator[list[str]]:
    """Yields a list to which a forward pass inside adds modules with finite input and non-finite output."""
    found: list[str] = []

    def hook_for(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if name not in found and finite(args) and not finite(output):
                found.append(name)

        return hook

    hooks = [module.register_forward_hook(hook_for(name or "the model")) for name, module in model.named_modules()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def finite(tree: Any) -> bool:
    """Whether all numbers in nested tensors are finite."""
    if isinstance(tree, Tensor):
        return not tree.is_floating_point() or bool(torch.isfinite(tree).all())
    if isinstance(tree, Mapping):
        return all(map(finite, tree.values()))
    if isinstance(tree, list | tuple):
        return all(map(finite, tree))
    return finite(vars(tree)) if hasattr(tree, "__dataclass_fields__") else True


def non_finite_gradients(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if p.grad is not None and not finite(p.grad)]


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
