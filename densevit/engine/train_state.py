"""What training changes: weights, optimiser, loss scale, moving average, random states and counters."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from densevit.engine.distributed import distribute_like, full_state_dict, local
from densevit.utils.process_group import ProcessGroup
from densevit.utils.state_dict import load_strict


def seed_everything(seed: int) -> None:
    """Seed python, numpy and torch: the same model on every process, and its dropout until `reseed`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (for the libraries that still draw from it)
    torch.manual_seed(seed)


def reseed(seed: int, rank: int, step: int = 0) -> None:
    """Give each process its own streams for dropout and stochastic depth."""
    seed_everything(int(np.random.SeedSequence((seed, rank, step)).generate_state(1, np.uint64)[0] >> 1))


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of all random generators of this process, as plain values and tensors."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    state: dict[str, Any] = {
        "python": [random.getstate()[0], list(random.getstate()[1]), random.getstate()[2]],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


Scores = dict[str, float]

COUNTERS = ("step", "samples", "updates", "skipped_in_row", "seconds", "scores", "scored_at")
"""Attributes of TrainState that are saved as they are."""

REGROUPED = (
    "the optimiser's groups of parameters were others: keep model.freeze_encoder, optim.layer_decay, "
    "optim.encoder_lr_scale, schedule.encoder_warmup, model.trainable, objective.loss_weighting, and whether "
    "optim.weight_decay is 0, as they were; or start anew from its weights, by model.init_from, also where "
    "optim.layer_decay grouped layers otherwise than timm, as before 2026-11-29"
)


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
        """Give the model the averaged weights inside the block."""
        trained = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        try:
            yield
        finally:
            self.model.load_state_dict(trained)

    @torch.no_grad()
    def copy_from(self, model: nn.Module, module: nn.Module) -> None:
        """Take the weights of a module of the model as they are, in place of their average."""
        module_ids = {id(value) for value in module.state_dict(keep_vars=True).values()}
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) in module_ids:
                self.average[name].copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        return self.average

    def load_state_dict(self, average: dict[str, Tensor]) -> None:
        for name, value in average.items():
            self.average[name].copy_(distribute_like(value, self.average[name]))


class TrainState:
    """All that a resumed run needs to continue bit for bit.

    Args:
        objective: what is trained beside the model.
        run_seed: seeds the random states where a run resumes with another number of processes.

    Attributes:
        step: steps tried; `updates`: steps taken, which leaves out those skipped.
        samples: images seen, which is the position in the stream of training data.
        seconds: time spent in training, over all starts of the run.
        scores: of the last validation, at step `scored_at`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        objective: nn.Module,
        scaler: torch.GradScaler,
        ema: EMA | None,
        world: ProcessGroup,
        run_seed: int,
    ) -> None:
        self.model, self.optimizer, self.objective = model, optimizer, objective
        self.scaler, self.ema, self.world, self.run_seed = scaler, ema, world, run_seed
        self.training_only: tuple[str, ...] = getattr(model, "training_only", ())
        self.step = self.samples = self.updates = self.skipped_in_row = self.scored_at = 0
        self.seconds = 0.0
        self.scores: Scores = {}
        modules = (*model.modules(), *objective.modules())
        self.running_statistics = [buffer for module in modules for buffer in running_statistics(module)]
        self._statistics_before: Sequence[Tensor] = []
        self.random_before: Mapping[str, Any] = {}

    def begin_step(self) -> None:
        """Remember what the forward pass of a step changes: random states and running statistics."""
        self.random_before = random_state(self.world.device)
        self._statistics_before = [buffer.clone() for buffer in self.running_statistics]

    @torch.no_grad()
    def restore_statistics(self, failed: Float[Tensor, ""]) -> None:
        """Set the running statistics back to those at `begin_step` where `failed` is not 0."""
        for buffer, before in zip(self.running_statistics, self._statistics_before, strict=True):
            buffer.copy_(torch.where(failed != 0, before, buffer))

    def undo_step(self) -> None:
        """Set random states and running statistics back to those at `begin_step`."""
        set_random_state(self.random_before, self.world.device)
        self.restore_statistics(torch.ones((), device=self.world.device))

    def state_dict(self, *, gather: bool = True) -> dict[str, Any]:
        """Return the whole tensors, on rank 0 only, or without `gather` the tensors of this process; all must call it
        together.

        `weights` are those to use, the moving average where there is one; then `raw_weights` are those in training.
        """
        weights: Mapping[str, Tensor] = self.model.state_dict()
        state = {
            "weights": self.ema.state_dict() if self.ema else weights,
            **({"raw_weights": weights} if self.ema else {}),
            "optimizer": self.optimizer.state_dict(),
            "objective": self.objective.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": self.world.all_gather(random_state(self.world.device)),
            **{name: getattr(self, name) for name in COUNTERS},
        }
        split_training_only(state, self.training_only)
        full: dict[str, Any] = full_state_dict(state, keep=self.world.is_main) if gather else state
        return full

    def like(self) -> Callable[[str], Tensor | None]:
        """Map each path of a tensor in `state_dict` to the model's or a parameter of its layout; None where there is
        none."""
        weights: Mapping[str, Tensor] = self.model.state_dict()
        parameters: list[Tensor] = [p for group in self.optimizer.param_groups for p in group["params"]]

        def find(path: str) -> Tensor | None:
            match path.split("/"):
                case ["weights" | "raw_weights" | "training_only", name]:
                    return weights.get(name)
                case ["optimizer", "state", index, _] if int(index) < len(parameters):
                    return parameters[int(index)]
            return None

        return find

    def load_state_dict(self, state: Mapping[str, Any], source: Path) -> None:
        """Load what `state_dict` gave, on any number of processes. `source`: what errors call it. Raises
        CheckpointError if the weights are of another model. Raises KeyError, ValueError, RuntimeError if something else
        is missing or does not fit."""
        state = join_training_only(state)
        weights = state["weights"]
        # A run that drops its moving average continues from the trained weights, not from their average; that of one
        # that adds it begins with the weights.
        load_weights(self.model, state.get("raw_weights", weights), source)
        if self.ema:
            self.ema.load_state_dict(weights)
        load_optimizer(self.optimizer, state["optimizer"])
        self.objective.load_state_dict(state["objective"])
        self.load_scaler(state["scaler"])
        for name in COUNTERS:
            setattr(self, name, state[name])
        if len(state["random"]) == self.world.size:
            set_random_state(state["random"][self.world.rank], self.world.device)
        else:
            reseed(self.run_seed, self.world.rank, self.step)

    def load_scaler(self, scaler: Mapping[str, Any]) -> None:
        """Load the loss scale; begin with a new one where the run had none, in another precision."""
        if scaler:
            self.scaler.load_state_dict(dict(scaler))


def running_statistics(module: nn.Module) -> list[Tensor]:
    """Return the buffers that a forward pass in training changes: those of BatchNorm, and those that a module names in
    `running_statistics`."""
    if isinstance(module, _NormBase):
        return list(module.buffers())
    return [getattr(module, name) for name in getattr(module, "running_statistics", ())]


def split_training_only(state: dict[str, Any], prefixes: tuple[str, ...]) -> None:
    """Move the weights that only training needs out of `weights`, which others load."""
    if prefixes:
        weights = state["weights"]
        state["training_only"] = {name: value for name, value in weights.items() if name.startswith(prefixes)}
        state["weights"] = {name: value for name, value in weights.items() if not name.startswith(prefixes)}


def join_training_only(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inverse of `split_training_only`."""
    return {**state, "weights": {**state["weights"], **state.get("training_only", {})}}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Load whole tensors, also into a sharded model. Raises CheckpointError if they are of another model."""
    state = model.state_dict()
    fitting = {name: distribute_like(value, state[name]) if name in state else value for name, value in weights.items()}
    load_strict(model, fitting, source)


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load moments from the state, and keep learning rates, weight decay and betas of the present config. Raises
    KeyError if a parameter's state lacks what the others have. Raises ValueError if it is of another optimiser, or of
    other parameters."""
    groups, saved = optimizer.param_groups, state["param_groups"]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in saved]:
        raise ValueError(REGROUPED)
    if any(("betas" in group) != ("betas" in other) for group, other in zip(groups, saved, strict=True)):
        raise ValueError("it was trained by another optim.type")
    settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    parameters = [p for group in groups for p in group["params"]]
    moments = state["state"]
    expected = set().union(*(entry.keys() for entry in moments.values()))
    for index, entry in moments.items():
        for name in expected - entry.keys():
            raise KeyError(f"{name} of parameter {index}")
        if index >= len(parameters) or any(x.ndim and x.shape != parameters[index].shape for x in entry.values()):
            raise ValueError(f"the optimiser's parameter {index} is of another shape")
    placed = {
        index: {name: distribute_like(value, parameters[index]) for name, value in entry.items()}
        for index, entry in moments.items()
    }
    optimizer.load_state_dict({**state, "state": placed})
    for group, setting in zip(optimizer.param_groups, settings, strict=True):  # torch loads the saved settings, too
        group.update(setting)
