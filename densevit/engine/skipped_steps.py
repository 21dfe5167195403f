"""Steps that training skipped, kept so that they can be run again: `bad_steps/step-N/` in the run's folder.

step-00000008/
    model.safetensors   the weights before the step (they are those after it, since it was skipped)
    state.pt            random states of each process before the step, loss scale, updates
    config.yaml
    manifest.json
    step.json           images, losses and gradient norm on each process
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from densevit.config import parser
from densevit.engine.fsdp import full_state_dict
from densevit.errors import CheckpointError, StorageError
from densevit.utils import atomic_io
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

if TYPE_CHECKING:
    from densevit.engine.trainer import Trainer

RECORD = "step.json"
MAX_RECORDS = 3  # each as large as the weights


@dataclass(frozen=True)
class StepRecord:
    """What one process did in a step.

    Attributes:
        names, indices: of its images, over all micro-batches.
        losses: their terms, averaged over the micro-batches.
        grad_norm: of the whole gradient, the same on every process.
    """

    names: Sequence[str]
    indices: Sequence[int]
    losses: Mapping[str, float]
    grad_norm: float


@dataclass(frozen=True)
class BadStep:
    """A recorded step; `parts` by rank. It began after `samples` images."""

    step: int
    samples: int
    seed: int
    parts: Sequence[StepRecord]


def record(trainer: "Trainer", part: StepRecord, random: Mapping[str, Any]) -> Path | None:
    """Writes a record before the step is counted; all processes must call it together.

    Args:
        random: the state of this process's generators before the step.

    Returns:
        the folder, on every process; None where nothing was written.
    """
    world = trainer.world
    parts, randoms = world.gather(part), world.gather(random)
    weights = full_state_dict(trainer.model.state_dict(), keep=world.is_main)
    state = {
        "random": randoms,
        "updates": trainer.updates,
        "scaler": trainer.scaler.state_dict(),
        "balance": trainer.balance.state_dict(),
    }
    bad = BadStep(trainer.step + 1, trainer.samples, trainer.run.seed, parts)
    folder = trainer.run.output / "bad_steps" / f"step-{bad.step:08d}"
    manifest = Manifest(step=trainer.step, samples=trainer.samples, world_size=world.size, data=trainer.data)

    def write() -> Path | None:
        if len(checkpoint.steps(folder.parent)) >= MAX_RECORDS:
            return None
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.write(folder, weights, trainer.card, parser.dump(trainer.run), state, manifest)
            atomic_io.write_text(folder / RECORD, json.dumps(asdict(bad), indent=1))
        except (CheckpointError, StorageError, OSError) as error:  # a record is a help, and no reason to stop
            tqdm.write(f"the step could not be recorded: {error}")
            return None
        return folder

    return world.on_main(write)


def read(folder: Path) -> BadStep:
    """
    Raises:
        CheckpointError: no record is there, or it is damaged.
    """
    checkpoint.verify(folder)
    try:
        content = json.loads((folder / RECORD).read_text())
        return BadStep(**{**content, "parts": [StepRecord(**part) for part in content["parts"]]})
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no recorded step ({RECORD} is missing).") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / RECORD}: damaged ({error}).") from None
