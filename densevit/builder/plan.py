"""A config becomes a plan: every part chosen and checked, data sets open, nothing heavy built yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from torch import nn

from densevit.builder.checkpoint import InitCheckpoint
from densevit.builder.model import ModelPlan
from densevit.config import plugins
from densevit.config.parser import Draft
from densevit.config.schema import Run
from densevit.config.validation import ErrorCollector, choose, choose_encoder_decoder
from densevit.data.datasets.base import Dataset
from densevit.data.transforms.base import Transform
from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.published_protocols import PROTOCOLS, Protocol
from densevit.registries import PARTS
from densevit.registry import ComponentConfig, ComponentSpec
from densevit.tasks.base import Task
from densevit.weights.finetune import filled

Locate = Callable[[str], str]


@dataclass(frozen=True)
class TaskPlan:
    task: ComponentSpec[Task]
    weight: float
    losses: Sequence[tuple[float, ComponentSpec[nn.Module]]]
    protocol: Protocol

    def spec(self) -> list[ComponentConfig]:
        return [{**loss.spec(), "weight": weight} for weight, loss in self.losses]


@dataclass(frozen=True)
class Plan:
    """A run whose every part is chosen and checked, with its data sets open; nothing heavy is built yet.

    Attributes:
        run: resolved: every default spelled out, `steps` known. Its dump repeats the run.
        locate: puts file and line of its key in front of a problem.
    """

    run: Run
    model: ModelPlan
    tasks: Mapping[str, TaskPlan]
    transforms: Sequence[ComponentSpec[Transform]]
    train: Dataset
    val: Dataset | None
    locate: Locate = str


@dataclass(frozen=True)
class Recipe:
    """A run whose every part is chosen and checked; its data sets are not open yet."""

    run: Run
    model: ModelPlan
    tasks: Mapping[str, TaskPlan]
    transforms: Sequence[ComponentSpec[Transform]]
    train: ComponentSpec[Dataset]
    val: ComponentSpec[Dataset] | None
    locate: Locate = str

    def open(self) -> Plan:
        """Opens the data sets, which says how long an epoch is.

        Raises:
            ConfigError: the run has too few steps for its schedule.
            DataError: a data set is not where or what it should be.
        """
        train = opened(self.train, "data.train", self.locate)
        val = opened(self.val, "data.val", self.locate) if self.val else None
        named = replace(self, model=self.model.for_classes(train.classes))
        run = named.resolved(len(train))
        if problems := run.problems():  # such as a warm-up longer than the epochs, whose steps are only known now
            raise ConfigError(*map(self.locate, problems))
        return Plan(run, named.model, self.tasks, self.transforms, train, val, self.locate)

    def resolved(self, length: int) -> Run:
        """The run with every default spelled out, for `length` training samples."""
        run = self.run
        steps = run.steps or ceil((run.epochs or 1) * length / run.batch_size)
        validate_every = run.validate_every or max(1, ceil(steps / 10))
        data = replace(
            run.data,
            train=self.train.spec(),
            val=self.val.spec() if self.val else None,
            transforms=[transform.spec() for transform in self.transforms],
        )
        return replace(
            run,
            model=replace(run.model, **self.model.spec(), resize=self.model.resize_by(run.model.resize)),
            tasks={name: replace(task, losses=self.tasks[name].spec()) for name, task in run.tasks.items()},
            data=data,
            steps=steps,
            epochs=None,
            validate_every=validate_every,
            save_every=run.save_every or validate_every,
        )


def opened(data: ComponentSpec[Dataset], where: str, locate: Locate) -> Dataset:
    try:
        return data.build()
    except ConfigError as error:
        raise ConfigError(*(locate(f"{where}: {problem}") for problem in error.problems)) from None
    except DataError as error:
        raise DataError(locate(f"{where}: {error}")) from error


def load_plan(path: str | Path, overrides: Sequence[str] = ()) -> Plan:
    """Reads a config and checks every name, option, type and file of it, then opens the data sets.

    Raises:
        ConfigError: every fault at once, with file and line.
        DataError: a data set is not where or what it should be.
    """
    return check(path, overrides).open()


def check(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """All of `load_plan` that needs no data.

    Raises:
        ConfigError: every fault at once, with file and line.
    """
    return resolve_plan(Draft.read(path, overrides))


def resolve_plan(draft: Draft) -> Recipe:
    """The same for a config that was read already.

    Raises:
        ConfigError: every fault at once, with file and line.
    """
    run = draft.run
    plugins.load(run.plugins, draft.folder)
    faults = ErrorCollector(draft.problems)
    chosen = choose(run, PARTS, faults)
    source = InitCheckpoint(run.model) if run.model.init_from is not None and not faults.problems else None
    start = source.start if source else None
    given = {"encoder": run.model.encoder, "decoder": run.model.decoder}
    held = {name: filled(spec, start.model[name]) for name, spec in given.items()} if start else None
    encoder, decoder = choose_encoder_decoder(run.model, PARTS, faults, held)
    for name in run.model.heads:
        if hasattr(nn.ModuleDict, name) or name == "training":
            faults.problems.append(f"model.heads.{name}: a name that torch needs for itself; take another.")
    faults.tell(draft.locate)
    tasks = {
        name: TaskPlan(part.task, run.tasks[name].weight, part.losses, PROTOCOLS[run.tasks[name].protocol])
        for name, part in chosen.tasks.items()
    }
    model = ModelPlan(encoder, decoder, chosen.heads, chosen.decoders, start, source)
    return Recipe(run, model, tasks, chosen.transforms, chosen.train, chosen.val, draft.locate)
