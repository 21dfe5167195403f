"""What a checkpoint holds of a run in training besides the weights to use, taken from a trainer and given back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import densevit
from densevit.engine import seed
from densevit.engine.fsdp import distribute_like, full_state_dict
from densevit.errors import CheckpointError
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

if TYPE_CHECKING:
    from densevit.engine.trainer import Trainer

PLAIN = ("updates", "skipped_in_row", "seconds", "scores", "scored_at")
"""Numbers of the trainer that are saved as they are."""

REGROUPED = (
    "the optimiser's groups of parameters were others: keep model.freeze_encoder, optim.layer_decay, "
    "optim.encoder_lr_scale, schedule.encoder_warmup, and whether optim.weight_decay is 0, as they were; or start anew "
    "from its weights, by model.init_from"
)


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint before it is written; on rank 0 whole, on the others without tensors that were sharded."""

    weights: Mapping[str, Tensor]
    state: Mapping[str, Any]
    manifest: Manifest


def state_dict(trainer: "Trainer") -> Snapshot:
    """Everything that resuming needs, bit for bit; all processes must call it together."""
    world = trainer.world
    weights: Mapping[str, Tensor] = trainer.model.state_dict()
    state = {
        "optimizer": trainer.optimizer.state_dict(),
        "balance": trainer.balance.state_dict(),
        "scaler": trainer.scaler.state_dict(),
        "random": world.gather(seed.random_state(world.device)),
        **{name: getattr(trainer, name) for name in PLAIN},
    }
    if trainer.ema:
        state["raw_weights"], weights = weights, trainer.ema.state_dict()
    return Snapshot(
        full_state_dict(weights, keep=world.is_main),
        full_state_dict(state, keep=world.is_main),
        Manifest(
            step=trainer.step,
            samples=trainer.samples,
            scores=trainer.scores if trainer.scored_at == trainer.step else {},
            world_size=world.size,
            data=trainer.data,
            versions={"densevit": densevit.__version__, "torch": torch.__version__},
        ),
    )


def load_state_dict(trainer: "Trainer", folder: Path, manifest: Manifest) -> None:
    """Takes up a verified checkpoint.

    Raises:
        CheckpointError: it is of another model, or lacks something.
    """
    weights, _ = checkpoint.read(folder)
    state = checkpoint.read_state(folder)
    where = folder / checkpoint.STATE
    try:
        # A run that had an average and gives it up goes on from what it learned, not from the average of that.
        load(trainer.model, state["raw_weights"] if trainer.ema else state.get("raw_weights", weights), folder)
        if trainer.ema:
            trainer.ema.load_state_dict(weights)
        load_optimizer(trainer.optimizer, state["optimizer"])
        trainer.balance.load_state_dict(state["balance"])
        trainer.scaler.load_state_dict(state["scaler"])
        for name in PLAIN:
            setattr(trainer, name, state[name])
        restore_random(trainer, state["random"], manifest.step)
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"{where}: holds no {error}; was it written with another config?") from None
    except (ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{where}: does not fit this run ({error}).") from None
    trainer.step, trainer.samples = manifest.step, manifest.samples


def load(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    own = model.state_dict()
    fitting = {name: distribute_like(value, own[name]) if name in own else value for name, value in weights.items()}
    checkpoint.load_into(model, fitting, source)


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Moments as they were; rates, decay and betas as the config has them now.

    Raises:
        KeyError: a parameter's state lacks what the others have.
        ValueError: it is of another optimiser, or of other parameters.
    """
    groups, saved = optimizer.param_groups, state["param_groups"]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in saved]:
        raise ValueError(REGROUPED)
    if any(("betas" in group) != ("betas" in other) for group, other in zip(groups, saved, strict=True)):
        raise ValueError("it was trained by another optim.type")
    settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    parameters = [p for group in groups for p in group["params"]]
    moments = state["state"]
    wanted = set().union(*(entry.keys() for entry in moments.values()))
    for index, entry in moments.items():
        for name in wanted - entry.keys():
            raise KeyError(f"{name} of parameter {index}")
        if index >= len(parameters) or any(x.ndim and x.shape != parameters[index].shape for x in entry.values()):
            raise ValueError(f"the optimiser's parameter {index} is of another shape")
    placed = {
        index: {name: distribute_like(value, parameters[index]) for name, value in entry.items()}
        for index, entry in moments.items()
    }
    optimizer.load_state_dict({**state, "state": placed})
    for group, setting in zip(optimizer.param_groups, settings, strict=True):  # torch brings back those of then
        group.update(setting)


def restore_random(trainer: "Trainer", states: list[dict[str, Any]], step: int) -> None:
    """Dropout goes on where it was; on another number of processes, where nothing was, anew."""
    if len(states) == trainer.world.size:
        seed.set_random_state(states[trainer.world.rank], trainer.world.device)
    else:
        seed.reseed(trainer.run.seed, trainer.world.rank, step)
