"""What stands behind `train`; `Run`: a run's folder, its scores, curves and best checkpoint."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from densevit.builder import plan as planning
from densevit.builder import training
from densevit.builder.adapter import write_encoder
from densevit.builder.checkpoint import open_checkpoint
from densevit.builder.features import feature_cache
from densevit.builder.plan import Plan
from densevit.builder.sanity_checks import run_sanity_checks
from densevit.config import plugins as plugin_files
from densevit.config.parser import OBJECT, Draft
from densevit.config.yaml_document import YamlDocument
from densevit.data.labels.class_table import refuse_reordered
from densevit.data.loading.feature_cache import FeatureCache
from densevit.engine import run_folder, skipped_steps
from densevit.engine.logger import describe_run, format_scores, read_csv
from densevit.engine.run_folder import Found
from densevit.engine.skipped_steps import ReplayResult, replay
from densevit.engine.train_state import reseed, seed_everything
from densevit.engine.trainer import Trainer
from densevit.engine.trials import choose_batch_size, images_per_second, overfit_config, stop_when_stalled
from densevit.engine.trials import overfit_one_batch as overfit
from densevit.errors import CheckpointError, ConfigError, Preempted
from densevit.inference.predictor import Predictor
from densevit.scorers import baselines
from densevit.scorers.training_report import PAGE, write_training_report
from densevit.structures import Row
from densevit.utils.device import choose_device
from densevit.utils.lock import FolderLock
from densevit.utils.process import poll
from densevit.utils.process_group import ProcessGroup, process_group
from densevit.weights import checkpoint

MOST_IMAGES = 1024  # that `batch_size: auto` tries in a step
FIRST = 5  # names of modules and gradients that a replay lists
NOT_STARTED = "stopped before the first step; there is nothing to save."


@dataclass(frozen=True)
class Run:
    """The folder of a training run; what it says is read from there: `Run("runs/mine")` opens an earlier one."""

    output: Path  # the folder: config.yaml, train.csv, val.csv, tensorboard/, checkpoints/, report.html
    # the module, of a run that was trained with an object as its encoder
    encoder: nn.Module | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", Path(self.output))
        if not (self.output / checkpoint.CONFIG).is_file():
            raise CheckpointError(f"{self.output}: no training run; it has no {checkpoint.CONFIG}.")

    @property
    def best(self) -> Path:
        """The checkpoint with the best validation score; the last one where nothing was validated."""
        return checkpoint.locate(self.output)

    @property
    def last(self) -> Path:
        """The newest checkpoint."""
        return checkpoint.steps(self.output / "checkpoints")[-1].resolve()

    @property
    def scores(self) -> Row:
        """Validation scores of `best`, {"abs_rel": 0.08, ...}; with several heads `depth/abs_rel`."""
        return dict(checkpoint.read_manifest(self.best).scores)

    @property
    def config(self) -> dict[str, Any]:
        """The config with every default spelled out; `train` accepts it."""
        return YamlDocument.read(self.output / checkpoint.CONFIG).tree

    @property
    def train_log(self) -> list[Row]:
        """A row for every logged step: step, loss, lr, grad_norm, ..."""
        return read_csv(self.output / "train.csv")

    @property
    def val_log(self) -> list[Row]:
        """A row for every validation: step and scores."""
        return read_csv(self.output / "val.csv")

    @property
    def report(self) -> Path | None:
        """The HTML page with curves, scores and the worst images; None where none was written."""
        return path if (path := self.output / PAGE).is_file() else None

    @cached_property
    def predictor(self) -> Predictor:
        """`best`, ready to predict: `run.predictor("photo.jpg")`; see `densevit.load` for other options."""
        from densevit.api import load

        return load(self.best, encoder=self.encoder)


def run_training(draft: Draft, resume: str | None = None) -> Run:
    """Train a config that was read: plan, data sets, trainer, report. `resume`: None to start anew, `auto` for the
    newest good checkpoint of the run, or a path."""
    poll(NOT_STARTED)
    plan = planning.resolve_plan(draft)
    with process_group(plan.run.device) as world, run_folder.locked(plan.run.output, world) as lock:
        resumed = run_folder.find_checkpoint(plan.run, resume, world)
        poll(NOT_STARTED)
        if draft.auto_batch_size:
            plan = with_batch_size(plan, world, resumed)
        plan = plan.open() if resumed is None else plan.open(resumed[1].step, resumed[1].samples)
        poll(NOT_STARTED)
        if resumed is not None:
            refuse_other_classes(plan, resumed[0])
        return fit(plan, world, resumed, lock)


def refuse_other_classes(plan: Plan, checkpoint_folder: Path) -> None:
    """Raise ConfigError: the data have the classes of a checkpoint's heads in another order."""
    for name, spec in checkpoint.read_card(checkpoint_folder).outputs.items():
        classes = plan.model.heads[name].options.get("classes") if name in plan.model.heads else None
        if isinstance(classes, tuple | list):
            refuse_reordered(f"{checkpoint_folder}: head '{name}'", spec.classes, classes)


def with_batch_size(plan: Plan, world: ProcessGroup, resumed: Found | None) -> Plan:
    """Return a plan with the batch size of the run that it resumes, else with one that is measured. Raises ConfigError
    with several processes, or if not even the smallest batch fits."""

    def sized(plan: Plan, size: int, **changes: Any) -> Plan:
        return replace(plan, run=replace(plan.run, batch_size=size, **changes))

    def measure(size: int) -> float:
        poll(NOT_STARTED)
        tried = sized(opened, size, output=Path(folder))
        return images_per_second(training.build_trainer(tried, world), training.train_batches(tried, world))

    if resumed is not None:
        return sized(plan, YamlDocument.read(resumed[0] / checkpoint.CONFIG).tree["batch_size"])
    if world.size > 1:
        raise ConfigError(f"batch_size: auto is measured by one process, and these are {world.size}; give a number.")
    fewest = max(plan.run.data.clip, training.fewest_images(plan))
    first, data = plan.run.grad_accum_steps * fewest, replace(plan.run.data, cache_features=None)
    opened = sized(plan, first, data=data, epochs=None, steps=plan.run.steps or 10**6).open()
    with TemporaryDirectory() as folder:
        most, fastest = min(MOST_IMAGES, len(opened.train)), world.device.type == "cpu"
        try:
            size = choose_batch_size(measure, first, most, fastest=fastest)
        except ConfigError as error:
            if not isinstance(error.__cause__, ValueError):
                raise
            size = choose_batch_size(measure, 2 * first, most, fastest=fastest)  # one image is too few for batch norm
    print(f"batch_size  {size}, {'the fewest at full speed' if fastest else 'the most that fit'}", flush=True)
    return sized(plan, size)


def cached_features(plan: Plan, trainer: Trainer, world: ProcessGroup) -> FeatureCache | None:
    """Return the outputs of the frozen encoder where the config caches them; those that are missing are computed."""
    if plan.run.data.cache_features is None:
        return None
    return feature_cache(plan, trainer.model, world, training.workers(plan.run, world))


def fit(plan: Plan, world: ProcessGroup, resumed: Found | None, lock: FolderLock) -> Run:
    """Train a plan whose data sets are open, in a folder that is locked."""
    trainer = build_trainer(plan, world)
    if resumed is not None:
        trainer.checkpointer.load(*resumed)
    run_folder.write_config(plan.run, world)
    trainer.checkpointer.before_save = lock.check
    images = len(plan.train), len(plan.val) if plan.val else 0
    opening = describe_run(trainer.run, trainer.state, trainer.precision, *images)

    def on_validated() -> None:
        world.on_main(lambda: write_training_report(plan, trainer.checkpointer.folder, opening))
        if plan.run.early_stop:
            stop_when_stalled(trainer)

    trainer.on_validated = on_validated
    if plan.run.early_stop:
        stop_when_stalled(trainer)
    if world.is_main:
        print(opening, flush=True)
        if (
            plan.val
            and min(images) >= baselines.FEWEST
            and any(task.output.output_kind.is_depth for task in trainer.tasks.values())
            and (text := baselines.describe_baselines(plan.train, plan.val))
        ):
            print(text, flush=True)
    features = cached_features(plan, trainer, world)
    try:
        with closing(trainer.checkpointer):
            scores = trainer.fit(training.train_batches(plan, world, features), training.val_batches(plan, world))
    except Preempted:
        write_report(plan, trainer, opening, None)  # without images, for there may be little time
        raise
    page = write_report(plan, trainer, opening, world.device)
    if world.is_main:
        if page:
            print(f"report: {page}")
        if trainer.objective.trains == "encoder":
            encoder_file = plan.run.output / "encoder.safetensors"
            write_encoder(encoder_file, open_checkpoint(plan.run.output))
            print(f"encoder: {encoder_file}  (for model.encoder.weights)")
        if best := trainer.checkpointer.folder.best():
            scores = dict(checkpoint.read_manifest(best).scores)
        print(f"done: {plan.run.output}" + (f", best {best.name}" if best else ""))
        if scores:
            print(format_scores(scores))
    encoder = plan.model.encoder
    return Run(plan.run.output, encoder.build() if encoder.name == OBJECT else None)


def write_report(plan: Plan, trainer: Trainer, opening: str, device: torch.device | None) -> Path | None:
    """Write `report.html`; the other processes wait, for torchrun ends all as soon as one has failed."""
    return trainer.world.on_main(lambda: write_training_report(plan, trainer.checkpointer.folder, opening, device))


def overfit_one_batch(draft: Draft) -> str:
    """Train on the first batch only and write nothing; return the verdict. Raises Diverged if it is not learned."""
    poll(NOT_STARTED)
    plan = planning.resolve_plan(draft)
    with process_group(plan.run.device) as world:
        plan = plan.open()
        plan = replace(plan, run=overfit_config(plan.run))
        trainer = build_trainer(plan, world)
        plan = replace(plan, run=replace(plan.run, data=replace(plan.run.data, cache_features=None)))
        return overfit(trainer, training.train_batches(plan, world))


def build_trainer(plan: Plan, world: ProcessGroup) -> Trainer:
    """Return the trainer, with the seeds set: one for the weights, then one for each process. Warns of what looks
    wrong."""
    seed_everything(plan.run.seed)
    trainer = training.build_trainer(plan, world)
    for warning in world.on_main(lambda: run_sanity_checks(plan, trainer.card, trainer.tasks)):
        if world.is_main:
            print(f"warning: {warning}", file=sys.stderr)
    reseed(plan.run.seed, world.rank)
    return trainer


def replay_step(folder: Path, words: Sequence[str], rank: int, plugins: Sequence[str | Path]) -> str:
    """Repeat a recorded step; return the comparison with what was recorded, for a terminal."""
    processes = len(skipped_steps.read(folder).parts)
    fixed = [f"model.init_from={folder}", "model.init_family=null", "data.workers=0"]
    # Never the files that the folder names: it may come from somebody else.
    fixed.append(f"plugins=[{', '.join(map(str, plugin_files.load(plugins)))}]")
    plan = planning.load_plan(folder / checkpoint.CONFIG, [*fixed, *words]).open()
    world = ProcessGroup(choose_device(plan.run.device))
    seed_everything(plan.run.seed)
    trainer = training.build_trainer(plan, world)
    features = cached_features(plan, trainer, world)
    batches = training.train_batches(plan, ProcessGroup(world.device, rank, processes), features)
    return summary(replay(trainer.state, trainer.forward_backward_step, batches, folder, rank))


def summary(done: ReplayResult) -> str:
    """Return the comparison as lines."""
    lines = [f"step {done.step}, process {done.rank} of {done.processes}: {', '.join(done.now.names)}"]
    lines += [f"  {'':16}{'recorded':>14}{'now':>14}"]
    pairs = [(name, value, done.now.losses.get(name, float("nan"))) for name, value in done.then.losses.items()]
    if done.processes == 1:
        pairs.append(("gradient norm", done.then.grad_norm, done.now.grad_norm))
    lines += [f"  {name:16}{then:>14.6g}{now:>14.6g}" for name, then, now in pairs]
    lines.append("The same, bit for bit." if done.same else "Not the same: data, code or device have changed.")
    if done.modules:
        lines.append(f"First not finite in the forward pass: {shortly(done.modules)}.")
    if done.gradients:
        lines.append(f"{len(done.gradients)} gradients are not finite: {shortly(done.gradients)}.")
    return "\n".join(lines)


def shortly(names: Sequence[str]) -> str:
    return ", ".join(names[:FIRST]) + (" ..." if len(names) > FIRST else "")
