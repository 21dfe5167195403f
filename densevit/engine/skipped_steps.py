"""Skipped steps: recorded, and run again on one process to find where the first non-finite number came from."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.config import parser
from densevit.config.schema import TrainConfig
from densevit.engine.distributed import full_state_dict
from densevit.engine.objective import Batches
from densevit.engine.train_state import TrainState, load_weights, set_random_state
from densevit.errors import CheckpointError, ConfigError, StorageError
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.device import DeviceNumbers
from densevit.utils.json_files import MALFORMED
from densevit.utils.output import tqdm
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

FOLDER, RECORD = "skipped_steps", "step.json"
MAX_RECORDS = 3  # each as large as the weights


@dataclass(frozen=True)
class StepRecord:
    """What one process computed in a step."""

    names: Sequence[str]  # of its images, over all micro-batches
    indices: Sequence[int]  # of its images, over all micro-batches
    losses: Mapping[str, float]  # their terms, averaged over the micro-batches
    grad_norm: float  # of the whole gradient, the same on every process


@dataclass(frozen=True)
class StepTensors:
    """The same while its numbers are on the device."""

    names: Sequence[str]
    indices: Sequence[int]
    losses: Mapping[str, Float[Tensor, ""]]
    grad_norm: Float[Tensor, ""]

    def numbers(self) -> Float[Tensor, " n"]:
        """Return the losses, and behind them the norm of the gradient."""
        return torch.stack([*self.losses.values(), self.grad_norm])

    def record(self, numbers: Sequence[float]) -> StepRecord:
        """Return `numbers`: `self.numbers()` as plain numbers."""
        *losses, grad_norm = numbers
        return StepRecord(self.names, self.indices, dict(zip(self.losses, losses, strict=True)), grad_norm)


@dataclass(frozen=True)
class PendingStep:
    """A step that is queued on the device."""

    step: int  # its number, from 1; `samples`: images seen before it
    samples: int
    tensors: StepTensors
    # of its tensors, then whether any process had one that is not finite, and whether any is to stop
    numbers: DeviceNumbers
    lr: float  # its learning rate
    random: Mapping[str, Any]  # the random states of this process before it

    def read(self) -> tuple[StepRecord, bool, bool]:
        """Return what it computed, whether that was finite on every process, and whether any is to stop; waits for
        it."""
        *numbers, failed, stop = self.numbers.read()
        return self.tensors.record(numbers), not failed, bool(stop)


@dataclass(frozen=True)
class SkippedStep:
    """A skipped step; `parts` are by rank. It began after `samples` images."""

    step: int
    samples: int
    seed: int
    parts: Sequence[StepRecord]


class SkippedStepRecorder:
    """Records the first steps that a run skips, for `densevit replay`.

    Args:
        data: the fingerprint of the training data.
    """

    def __init__(self, state: TrainState, run: TrainConfig, card: ModelCard, data: str) -> None:
        self.state, self.run, self.card, self.data = state, run, card, data
        self.count = 0

    def __call__(self, pending: PendingStep, record: StepRecord, *, fp16: bool) -> None:
        """Write a step that changed no weights; all processes must call it together. `record`: what this process
        computed; `fp16`: whether finite losses are no reason, since the loss scale is still sought."""
        world = self.state.world
        finite, _ = world.all_reduce_flags(all(map(math.isfinite, record.losses.values())))
        if self.count >= MAX_RECORDS or (finite and fp16):
            return
        self.count += 1
        records, random = world.all_gather(record), world.all_gather(pending.random)
        weights = full_state_dict(self.state.model.state_dict(), keep=world.is_main)
        saved = {
            "random": random,
            "updates": self.state.updates,
            "scaler": self.state.scaler.state_dict(),
            "objective": self.state.objective.state_dict(),
        }
        if self.state.ema:  # which an objective may learn from
            saved["average"] = full_state_dict(self.state.ema.state_dict(), keep=world.is_main)
        skipped = SkippedStep(pending.step, pending.samples, self.run.seed, records)
        world.on_main(lambda: self._write(skipped, weights, saved))

    def _write(self, skipped: SkippedStep, weights: Mapping[str, Tensor], saved: Mapping[str, Any]) -> None:
        folder = self.run.output / FOLDER / f"step-{skipped.step:08d}"
        if len(checkpoint.steps(folder.parent)) >= MAX_RECORDS:
            return
        size = self.state.world.size
        manifest = Manifest(step=skipped.step - 1, samples=skipped.samples, world_size=size, data=self.data)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.write(folder, weights, self.card, parser.dump(self.run), saved, manifest)
            atomic_io.write_text(folder / RECORD, json.dumps(asdict(skipped), indent=1))
        except (CheckpointError, StorageError, OSError) as error:  # the run continues without a record
            tqdm.write(f"the step could not be recorded: {error}")
            return
        plugins = "".join(f" --plugins {path}" for path in self.run.plugins)
        tqdm.write(f"to look into it: densevit replay {folder}{plugins}")


def read(folder: Path) -> SkippedStep:
    """Raise CheckpointError if no record is there, or it is damaged."""
    checkpoint.verify(folder)
    try:
        content = json.loads((folder / RECORD).read_text())
        return SkippedStep(**{**content, "parts": [StepRecord(**record) for record in content["parts"]]})
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no recorded step ({RECORD} is missing).") from None
    except (OSError, *MALFORMED) as error:
        raise CheckpointError(f"{folder / RECORD}: damaged ({error!s:.300}).") from None


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
    """Run a step from its recorded weights, random states and position in the data. Raises CheckpointError: no record,
    or of another model. Raises ConfigError: no such process. `step`: `Trainer.forward_backward_step` of the trainer
    that owns `state`; `rank`: the process whose images are taken; `train` gives them."""
    skipped = read(folder)
    if not 0 <= rank < len(skipped.parts):
        raise ConfigError(
            f"--rank: {len(skipped.parts)} processes took part, 0 to {len(skipped.parts) - 1}; got {rank}."
        )
    saved = checkpoint.read_state(folder)
    load_weights(state.model, saved["weights"], folder)
    state.step, state.samples, state.updates = skipped.step - 1, skipped.samples, saved["updates"]
    state.load_scaler(saved["scaler"])
    state.objective.load_state_dict(saved["objective"])
    if state.ema and "average" in saved:
        state.ema.load_state_dict(saved["average"])
    set_random_state(saved["random"][rank], state.world.device)
    with closing(train(skipped.samples)) as batches, non_finite_modules(state.model) as modules:
        tensors = step(batches)
        now = tensors.record(tensors.numbers().tolist())
    return ReplayResult(
        skipped.step, rank, len(skipped.parts), skipped.parts[rank], now, modules, non_finite_gradients(state.model)
    )


@contextmanager
def non_finite_modules(model: nn.Module) -> Iterator[list[str]]:
    """Yield a list to which a forward pass inside adds modules with finite input and non-finite output."""
    names: list[str] = []

    def hook_for(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if name not in names and finite(args) and not finite(output):
                names.append(name)

        return hook

    hooks = [module.register_forward_hook(hook_for(name or "the model")) for name, module in model.named_modules()]
    try:
        yield names
    finally:
        for hook in hooks:
            hook.remove()


def finite(tree: Any) -> bool:
    """Return whether all numbers in nested tensors are finite."""
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
