"""Steps that training skipped, recorded so that they can be run again: `skipped_steps/step-N/` in the run's folder.

step-00000008/
    model.safetensors   the weights before the step, which are also those after it
    state.pt            random states of each process before the step, loss scale, updates
    config.yaml
    manifest.json
    step.json           images, losses and gradient norm on each process
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.config import parser
from densevit.config.schema import Run
from densevit.engine.fsdp import full_state_dict
from densevit.engine.train_state import TrainState
from densevit.errors import CheckpointError, StorageError
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.device import DeviceNumbers
from densevit.utils.json_files import MALFORMED
from densevit.utils.progress import tqdm
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
        """The losses, and behind them the norm of the gradient."""
        return torch.stack([*self.losses.values(), self.grad_norm])

    def record(self, numbers: Sequence[float]) -> StepRecord:
        """`numbers`: `self.numbers()` as plain numbers."""
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
        """What it computed, whether that was finite on every process, and whether any is to stop; waits for it."""
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

    def __init__(self, state: TrainState, run: Run, card: ModelCard, data: str) -> None:
        self.state, self.run, self.card, self.data = state, run, card, data
        self.count = 0

    def __call__(self, pending: PendingStep, part: StepRecord, *, fp16: bool) -> None:
        """Write a step that changed no weights; all processes must call it together. `part`: what this process
        computed; `fp16`: whether finite losses are no reason, since the loss scale is still sought."""
        world = self.state.world
        finite, _ = world.all_reduce_flags(all(map(math.isfinite, part.losses.values())))
        if self.count >= MAX_RECORDS or (finite and fp16):
            return
        self.count += 1
        parts, random = world.all_gather(part), world.all_gather(pending.random)
        weights = full_state_dict(self.state.model.state_dict(), keep=world.is_main)
        saved = {
            "random": random,
            "updates": self.state.updates,
            "scaler": self.state.scaler.state_dict(),
            "objective": self.state.objective.state_dict(),
        }
        skipped = SkippedStep(pending.step, pending.samples, self.run.seed, parts)
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
        except (CheckpointError, StorageError, OSError) as error:  # the run goes on without a record
            tqdm.write(f"the step could not be recorded: {error}")
            return
        plugins = "".join(f" --plugins {path}" for path in self.run.plugins)
        tqdm.write(f"to look into it: densevit replay {folder}{plugins}")


def read(folder: Path) -> SkippedStep:
    """Raises CheckpointError if no record is there, or it is damaged."""
    checkpoint.verify(folder)
    try:
        content = json.loads((folder / RECORD).read_text())
        return SkippedStep(**{**content, "parts": [StepRecord(**part) for part in content["parts"]]})
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no recorded step ({RECORD} is missing).") from None
    except (OSError, *MALFORMED) as error:
        raise CheckpointError(f"{folder / RECORD}: damaged ({error}).") from None
