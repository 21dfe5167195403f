"""The interface of training objectives: what a training minimises, trains beside the model, scores; and of batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from densevit.config.schema import TrainConfig
from densevit.config.validation import TaskSpec
from densevit.engine.train_state import Scores, TrainState
from densevit.errors import ConfigError
from densevit.model_card import ModelCard
from densevit.registry import ComponentConfig, Registry
from densevit.structures import Batch
from densevit.tasks.base import Task
from densevit.utils.device import Precision


@runtime_checkable
class Batches(Protocol):
    """An endless iterator that may hold processes until it is closed; any generator is one."""

    def __next__(self) -> Batch: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def close(self) -> None: ...


@runtime_checkable
class CountsDraws(Protocol):
    """Batches of a mixture, which know how often each of its data sets was drawn."""

    def drawn(self, samples: int) -> Mapping[str, int]:
        """Return how many of the run's first samples each source gave, over all processes."""


@runtime_checkable
class Validation(Protocol):
    """The validation images of this process, each once, and their number over all processes."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Scheduled(Protocol):
    """A part of a model that changes over a run; nothing of it is saved, a resumed run calls it anew."""

    def on_train_step(self, progress: float) -> None:
        """Receive, before each step, the share of the run's steps that is done, from 0 to 1."""


AllReduceMean = Callable[[dict[str, float]], dict[str, float]]


@dataclass(frozen=True)
class TrainingSetup:
    """What an objective is built from.

    Attributes:
        run: the resolved config; `steps` is set.
        model: image b 3 h w -> {head: prediction}, in training also {head/name: extra}; with an `encoder` attribute.
        tasks: by the name of the head; they score the model.
        task_specs: the same as the config has them.
        card: goes into every checkpoint.
        data: the open data sets: `train`, and `val` and `probe` where the config has them.
        build_encoder: the config of an encoder and its key -> the encoder, with its weights loaded.
    """

    run: TrainConfig
    model: nn.Module
    tasks: Mapping[str, Task]
    task_specs: Mapping[str, TaskSpec]
    card: ModelCard
    data: Mapping[str, Any]
    build_encoder: Callable[[ComponentConfig, str], nn.Module]


@dataclass(frozen=True)
class TrainerContext:
    """What the trainer lends to its objective.

    Attributes:
        forward: runs the model in training on images and further inputs, through autocast and the parallel wrapper.
        state: all that training changes, with the model, its moving average and the processes.
    """

    forward: Callable[..., dict[str, Tensor]]
    state: TrainState
    precision: Precision


class TrainingObjective(nn.Module, ABC):
    """What a training minimises; built from a `TrainingSetup` by position, with the options of the config by keyword.

    Submodules of an objective are trained and saved beside the model, and are not part of it: gradients are averaged
    over the processes, checkpoints hold them for resuming, and exported models do not. An objective with a method
    `on_train_step` receives the progress of the run before each step (`Scheduled`).

    Attributes:
        validates_start: whether the initial weights are scored before the first step.
        scores: what `before_validation` returns that may pick the best checkpoint, each with its direction.
        trains: what later trainings take from this one; of `encoder` the weights are written as a file, too.
        looks_ahead: whether `look_ahead` is called before the first micro-batch of each step.
    """

    looks_ahead: bool = False

    validates_start: bool = False
    scores: ClassVar[Mapping[str, Literal["min", "max"]]] = {}
    trains: ClassVar[Literal["model", "encoder"]] = "model"
    context: TrainerContext

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__()
        self.setup = setup

    @classmethod
    def build(cls, setup: TrainingSetup, **options: Any) -> "TrainingObjective":
        """Return the objective of a component that a config names. Raises ConfigError: it does not fit the model or the
        data."""
        return cls(setup, **options)

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        """Yield what in a run is incompatible with this objective; by default what only others read."""
        if not run.model.heads:
            yield "model.heads: there is none, and nothing to learn."
        if run.data.probe is not None:
            yield "data.probe: only a pre-training has a probe; set objective to mae or dino."

    @classmethod
    def fewest_images(cls, options: Mapping[str, Any]) -> int:
        """Return how many images a micro-batch needs at least."""
        return 1

    @classmethod
    def check_data(cls, run: TrainConfig, tasks: Mapping[str, TaskSpec], data: Mapping[str, Any]) -> None:
        """Check a run and its open data sets before the model is built; by default, that none needs a teacher. Raises
        ConfigError: the objective cannot learn from them."""
        for i, source in enumerate(data["train"].sources):
            key_path, objective = f"data.train.sources.{i}", f"objective '{run.objective['type']}'"
            if source.strong is not None:
                raise ConfigError(f"{key_path}.consistency: {objective} has no teacher of images; leave it out.")
            if source.drop_worst:
                raise ConfigError(f"{key_path}.drop_worst: {objective} does not apply it; leave it out.")

    @property
    def model(self) -> nn.Module:
        """The network that is trained, averaged and saved."""
        return self.setup.model

    def attach(self, context: TrainerContext) -> None:
        """Take what the trainer lends; called once, before the first step."""
        self.context = context

    def look_ahead(self, batches: Iterable[Batch], step: int) -> None:
        """See all micro-batches of this process's next step; random states and running statistics are set back."""

    @abstractmethod
    def losses(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """Return named and weighted losses of a micro-batch, whose sum is minimised. `step`: optimiser steps done."""

    def predict(self, batch: Batch) -> dict[str, Tensor]:
        """Run the model in training on the images of a batch and all further inputs that it takes."""
        return self.context.forward(batch.image, **model_inputs(self.model, batch))

    def before_validation(self) -> Scores:
        """Prepare the model for a validation; all processes call it together. Return further scores."""
        return {}

    def log_values(self, all_reduce_mean: AllReduceMean) -> dict[str, float | None]:
        """Return further columns of `train.csv` for the last step; all processes call it together."""
        return {}


def model_inputs(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """Return what a model takes beside the images of a batch, as keyword arguments."""
    conditioned: Any = model
    inputs = conditioned.inputs_of(batch) if hasattr(model, "inputs_of") else {}
    optional = {"inputs": inputs, "features": batch.features}
    return {name: value for name, value in optional.items() if value}


OBJECTIVES = Registry[TrainingObjective]("objective")
