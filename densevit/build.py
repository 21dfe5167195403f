"""The one room that knows all parts: a config becomes a checked plan, and a plan becomes model, tasks and loaders."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

import densevit.data
import densevit.losses
import densevit.models
import densevit.tasks
import densevit.weights.families  # noqa: F401 (the five imports register the parts)
from densevit import config
from densevit.assembly import ModelPlan, Source, build_card, build_model, restore, start_from
from densevit.config import Run
from densevit.data.class_table import refuse_reordered
from densevit.data.dataset import DATASETS, Dataset
from densevit.data.first_look import first_look as look_at_depth
from densevit.data.first_look import first_look_at_labels as look_at_labels
from densevit.data.loader import TrainLoader, eval_loader, train_loader
from densevit.data.transform import TRANSFORMS, Transform
from densevit.data.transforms import compose
from densevit.data.workers import auto_workers
from densevit.engine.distributed import World
from densevit.engine.interfaces import Validation
from densevit.engine.trainer import Trainer
from densevit.errors import ConfigError, DataError
from densevit.evaluation import class_metrics, seg_metrics
from densevit.evaluation.evaluate import mean_row
from densevit.evaluation.protocols import PROTOCOLS, Protocol
from densevit.evaluation.rows import Row
from densevit.inference.forward import forward
from densevit.inference.predictor import Predictor
from densevit.inference.summary import out_of_memory
from densevit.models.decoder import DECODERS
from densevit.models.encoder import ENCODERS
from densevit.models.heads import HEADS
from densevit.registry import Choice, Part, Registry, did_you_mean
from densevit.structures import ModelCard, OutputSpec
from densevit.tasks.depth import DepthTask
from densevit.tasks.task import TASKS, Task
from densevit.weights.hub import is_address
from densevit.weights.start import filled

T = TypeVar("T")
Locate = Callable[[str], str]


@dataclass(frozen=True)
class TaskPlan:
    task: Choice[Task]
    weight: float
    losses: Sequence[tuple[float, Choice[nn.Module]]]
    protocol: Protocol

    def spec(self) -> list[Part]:
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
    transforms: Sequence[Choice[Transform]]
    train: Dataset
    val: Dataset | None
    locate: Locate = str


@dataclass(frozen=True)
class Recipe:
    """A run whose every part is chosen and checked; its data sets are not open yet."""

    run: Run
    model: ModelPlan
    tasks: Mapping[str, TaskPlan]
    transforms: Sequence[Choice[Transform]]
    train: Choice[Dataset]
    val: Choice[Dataset] | None
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


def opened(data: Choice[Dataset], where: str, locate: Locate) -> Dataset:
    try:
        return data.build()
    except ConfigError as error:
        raise ConfigError(*(locate(f"{where}: {problem}") for problem in error.problems)) from None
    except DataError as error:
        raise DataError(locate(f"{where}: {error}")) from error


class _Faults:
    """Collects what is wrong, so that a user sees all of it at once."""

    def __init__(self, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)

    def check(self, registry: Registry[T], spec: Part, where: str) -> Choice[T]:
        try:
            return registry.check(spec, where)
        except ConfigError as error:
            self.problems += error.problems
            return Choice("", _unbuilt, {})

    def check_file(self, path: Path | None, where: str) -> None:
        if path is not None and not path.exists():
            self.problems.append(f"{where}: no such file, got '{path}'.")


def _unbuilt() -> Any:
    raise AssertionError("a faulty plan is raised, not built")


UNCHOSEN: Choice[Any] = Choice("", _unbuilt, {})


def configure(path: str | Path, overrides: Sequence[str] = ()) -> Plan:
    """Reads a config and checks every name, option, type and file of it, then opens the data sets.

    Raises:
        ConfigError: every fault at once, with file and line.
        DataError: a data set is not where or what it should be.
    """
    return check(path, overrides).open()


def check(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """All of `configure` that needs no data.

    Raises:
        ConfigError: every fault at once, with file and line.
    """
    run, document, told = config.read_known(path, overrides)
    load_plugins(run.plugins, Path(path).parent)
    faults = _Faults(told)
    recipe = Recipe(
        run,
        _plan_model(run, faults),
        {name: _plan_task(task, f"tasks.{name}", faults) for name, task in run.tasks.items()},
        [faults.check(TRANSFORMS, spec, f"data.transforms.{i}") for i, spec in enumerate(run.data.transforms)],
        faults.check(DATASETS, run.data.train, "data.train"),
        faults.check(DATASETS, run.data.val, "data.val") if run.data.val else None,
        document.locate,
    )
    if faults.problems:
        raise ConfigError(*map(document.locate, faults.problems))
    return recipe


def _plan_model(run: Run, faults: _Faults) -> ModelPlan:
    init = run.model.init
    if init is not None and not is_address(init):
        faults.check_file(Path(init), "model.init")
    source = Source(run.model) if init is not None and not faults.problems else None
    start = source.start if source else None
    given = {"encoder": run.model.encoder, "decoder": run.model.decoder}
    parts = {name: filled(spec, start.model[name] if start else {}) for name, spec in given.items()}

    def choose(registry: Registry[T], name: str) -> Choice[T]:
        spec = given[name]
        if start is None and (spec is None or (init is not None and "type" not in spec)):
            return UNCHOSEN  # told already, or left to a file that was not read
        return faults.check(registry, parts[name], f"model.{name}")

    encoder, decoder = choose(ENCODERS, "encoder"), choose(DECODERS, "decoder")
    for name in run.model.heads:
        if hasattr(nn.ModuleDict, name) or name == "training":
            faults.problems.append(f"model.heads.{name}: a name that torch needs for itself; take another.")
    heads = {name: faults.check(HEADS, spec, f"model.heads.{name}") for name, spec in run.model.heads.items()}
    own = {name: faults.check(DECODERS, spec, f"model.decoders.{name}") for name, spec in run.model.decoders.items()}
    faults.check_file(encoder.options.get("weights"), "model.encoder.weights")
    return ModelPlan(encoder, decoder, heads, own, start, source)


def _plan_task(task: config.Task, where: str, faults: _Faults) -> TaskPlan:
    chosen = faults.check(TASKS, {"type": task.type}, where)
    kind: Any = chosen.part if chosen.name else DepthTask
    losses = []
    for i, spec in enumerate(task.losses or kind.usual):
        options = dict(spec)
        weight = options.pop("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < inf:
            faults.problems.append(f"{where}.losses.{i}.weight: a number over 0, got {weight!r}.")
            weight = 1.0
        losses.append((float(weight), faults.check(kind.objectives, options, f"{where}.losses.{i}")))
    if task.protocol not in PROTOCOLS:
        hint = did_you_mean(task.protocol, PROTOCOLS)
        faults.problems.append(f"{where}.protocol: no protocol '{task.protocol}'.{hint}")
    return TaskPlan(chosen, task.weight, losses, PROTOCOLS.get(task.protocol, PROTOCOLS["plain"]))


# What is no depth, and who scores it.
OTHERS: Mapping[str, str] = {
    "class": "classes of whole images, not depth; `densevit eval-class`",
    "labels": "classes of pixels, not depth; `densevit eval-seg`",
}


def find_protocol(name: str, data: Dataset, output: OutputSpec | None = None) -> Protocol:
    """A protocol with the data set's range, where it leaves that open, fitted to predictions without unit.

    Args:
        output: what the predictions mean; None takes them for metres.

    Raises:
        ConfigError: no such protocol, or predictions that are no depth.
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{name}'.{did_you_mean(name, PROTOCOLS)}")
    if output is not None and output.kind in OTHERS:
        raise ConfigError(f"this head gives {OTHERS[output.kind]} scores those.")
    protocol = PROTOCOLS[name].for_range(*data.depth_range)
    return protocol if output is None else protocol.for_kind(output.kind)


def load_plugins(paths: Sequence[Path], folder: Path = Path()) -> None:
    """Runs Python files that register parts; each once. Relative ones lie beside the config, or in the working folder.

    Raises:
        ConfigError: no such file, no Python file, or what went wrong in it and where.
    """
    for path in paths:
        found = next((p.resolve() for p in (folder / path, path) if p.is_file()), None)
        if found is None:
            raise ConfigError(f"plugins: no such file, got '{path}'.")
        name = f"densevit_plugin_{found.stem}"
        if getattr(sys.modules.get(name), "__file__", None) == str(found):
            continue
        spec = importlib.util.spec_from_file_location(name, found)
        if spec is None or spec.loader is None:
            raise ConfigError(f"plugins: {found} is no Python file (.py).")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except Exception as error:
            del sys.modules[name]
            raise ConfigError(f"plugins: {blamed(error, found)}: {type(error).__name__}: {error}") from error


def blamed(error: Exception, plugin: Path) -> str:
    """The plugin, and its last line that was at work."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(plugin)]
    return f"{plugin}:{lines[-1]}" if lines else str(plugin)


def build_trainer(plan: Plan, world: World) -> Trainer:
    """Model, tasks and trainer, with weights loaded from `model.init`.

    Raises:
        ConfigError, CheckpointError: weights that are missing or do not fit.
    """
    run = plan.run
    try:
        model = build_model(plan.model, run.model.resize)
    except ConfigError as error:
        raise ConfigError(*map(plan.locate, error.problems)) from None
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or out_of_memory(error)):
            raise
        raise ConfigError(f"model: does not fit into memory ({str(error).splitlines()[0]}).") from None
    if plan.model.source is not None:
        started = start_from(model, plan.model, plan.model.source)
        if world.is_main:
            print(started, file=sys.stderr)
    if run.model.freeze_encoder:
        model.encoder.requires_grad_(False)
    model.encoder.set_grad_checkpointing(run.model.grad_checkpointing)
    card = build_card(model, plan.model, run.model.resize, str(run.data.train), plan.train.palette)
    card = replace(card, config=config.to_dict(run))
    tasks = {name: build_task(name, plan, card.outputs[name]) for name in plan.tasks}
    # Only depth's protocols ask for a window; images go through the model once, so the first one's holds for all.
    depths = [task.protocol for name, task in plan.tasks.items() if card.outputs[name].kind not in SCORES]
    predict = predict_by(depths[0] if depths else PROTOCOLS["plain"], card)
    return Trainer(run, model, tasks, world, predict=predict, card=card, data=fingerprint(plan.train))


def first_look(plan: Plan, card: ModelCard) -> list[str]:
    """Warnings about truth that the heads cannot reach, or that tells nothing apart.

    Raises:
        DataError: all of it lies outside the range of a head.
    """
    taught = [output for name, output in card.outputs.items() if name in plan.tasks]
    policy = plan.run.data.on_error
    ranges = [output.range for output in taught if output.kind == "metric" and output.range]
    warnings = [warning for ends in ranges for warning in look_at_depth(plan.train, *ends, on_error=policy)]
    labelled = any(output.kind == "labels" for output in taught)
    return warnings + (look_at_labels(plan.train, on_error=policy) if labelled else [])


def with_run(plan: Plan, run: Run) -> Plan:
    """The same parts and data, trained in another way."""
    return replace(plan, run=run)


def fingerprint(data: Dataset) -> str:
    """What tells a data set from others, and from itself with samples added or taken away: its names, in order."""
    names = hashlib.sha256("\n".join(data.names).encode()).hexdigest()
    return f"{len(data)} samples, {names[:12]}"


# How what is no depth is scored in the validation during training: one image, and all of them.
SCORES: Mapping[str, tuple[Callable[..., Row], Callable[[Sequence[Row]], Row]]] = {
    "class": (class_metrics.score, class_metrics.mean_row),
    "labels": (seg_metrics.as_row, seg_metrics.pooled_scores),
}


def build_task(name: str, plan: Plan, output: OutputSpec) -> Task:
    task = plan.tasks[name]
    losses = [(loss.name, task.weight * weight, loss.build()) for weight, loss in task.losses]
    check_output(name, task, output, plan)
    if output.kind in SCORES:
        return task.task.build(name, output, losses, *SCORES[output.kind])
    protocol = find_protocol(task.protocol.name, plan.val or plan.train, output)
    return task.task.build(name, output, losses, protocol.score, mean_row)


def check_output(name: str, task: TaskPlan, output: OutputSpec, plan: Plan) -> None:
    """
    Raises:
        ConfigError: the head gives what the task cannot teach, or other classes than the data has.
    """
    kinds: tuple[str, ...] = task.task.part.kinds  # type: ignore[attr-defined]
    if output.kind not in kinds:
        raise ConfigError(
            f"tasks.{name}: task '{task.task.name}' teaches heads that give {', '.join(kinds)}; "
            f"model.heads.{name} gives {output.kind}."
        )
    if output.focal is not None:
        raise ConfigError(
            f"model.heads.{name}: its metres depend on the camera (focal {output.focal:g}), which losses do not know. "
            "Leave `focal` out for depth without unit, or take a head of type 'metric'."
        )
    for data in filter(None, (plan.train, plan.val)):
        if output.kind in SCORES and len(data.classes) != len(output.classes):
            raise ConfigError(
                f"model.heads.{name}: {len(output.classes)} classes, where the data has {len(data.classes) or 'none'}."
            )
        if output.kind in SCORES:
            refuse_reordered(f"model.heads.{name}", output.classes, data.classes)


def predict_by(protocol: Protocol, card: ModelCard) -> Callable[[nn.Module, Tensor], dict[str, Tensor]]:
    """How a protocol shows images to the model: through its window, at the card's size."""

    def predict(model: nn.Module, image: Tensor) -> dict[str, Tensor]:
        h, w = image.shape[-2:]
        return forward(model, image, card.resize, card.multiple, box=protocol.input_box(h, w))

    return predict


def train_batches(plan: Plan, world: World) -> Callable[[int], TrainLoader]:
    """Images already seen -> the endless micro-batches from there on."""
    run = plan.run
    transform = compose([choice.build() for choice in plan.transforms])

    def batches(start: int) -> TrainLoader:
        return train_loader(
            plan.train,
            transform,
            seed=run.seed,
            batch_size=run.batch_size,
            accumulate=run.accumulate,
            rank=world.rank,
            world_size=world.size,
            start=start,
            workers=workers(run, world),
            pin=world.device.type == "cuda",
            on_error=run.data.on_error,
            max_bad=run.data.max_bad,
            timeout=run.data.timeout,
        )

    return batches


def val_batches(plan: Plan, world: World) -> Validation | None:
    if plan.val is None:
        return None
    size = max(1, min(8, plan.run.batch_size // (plan.run.accumulate * world.size)))
    return eval_loader(
        plan.val,
        batch_size=size,
        rank=world.rank,
        world_size=world.size,
        workers=workers(plan.run, world),
        timeout=plan.run.data.timeout,
    )


def workers(run: Run, world: World) -> int:
    return auto_workers(world.local_size) if run.data.workers == "auto" else run.data.workers


def open_data(spec: Part) -> Dataset:
    """A data set by its spec, `{type: nyu, split: test}`.

    Raises:
        ConfigError, DataError
    """
    return DATASETS.check(spec, "data").build()


def load(
    path: str | Path,
    family: str | None = None,
    *,
    device: str = "auto",
    precision: Any = "auto",
    family_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Predictor:
    """A trained model, ready to predict: `depth = load("runs/nyu")("photo.jpg")`.

    Args:
        path: a run's folder (its best checkpoint), a step folder, a `model.safetensors`, or a published checkpoint.
        family: whose published checkpoint it is, where its keys cannot tell.
        device: auto, cpu, cuda or cuda:N.
        precision: auto, fp32, bf16 or fp16.
        family_options: what a published file cannot say, as `{"max_depth": 20}`.
        options: of `Predictor`.

    Raises:
        CheckpointError: missing, damaged, of unknown parts, or of several possible families.
        ConfigError: no such family, or no such option of it.
    """
    model, card = restore(path, family, **(family_options or {}))
    return Predictor(model, card, device=device, precision=precision, **options)
