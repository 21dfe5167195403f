"""`train`: a config becomes a trained run; `Run`: a run's folder, its scores, curves and best checkpoint."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from densevit.builder import plan as planning
from densevit.builder import training
from densevit.builder.plan import Plan
from densevit.config.objects import OBJECT
from densevit.config.parser import Draft
from densevit.config.yaml_document import YamlDocument
from densevit.engine import distributed, run_folder
from densevit.engine.distributed import DistributedContext
from densevit.engine.logger import read_csv
from densevit.engine.overfit import overfit_config
from densevit.engine.overfit import overfit_one_batch as overfit
from densevit.engine.run_folder import Found
from densevit.engine.trainer import Trainer
from densevit.errors import CheckpointError, Preempted
from densevit.evaluators.training_report import PAGE, write_training_report
from densevit.inference.predictor import Predictor
from densevit.structures import Row
from densevit.utils import seed
from densevit.utils.lock import FolderLock
from densevit.utils.signals import poll
from densevit.weights import checkpoint

NOT_STARTED = "stopped before the first step; there is nothing to save."


@dataclass(frozen=True)
class Run:
    """The folder of a training run; what it says is read from there: `Run("runs/mine")` opens an earlier one.

    Attributes:
        output: the folder: config.yaml, train.csv, val.csv, tensorboard/, checkpoints/, report.html.
        encoder: the module, of a run that was trained with an object as its encoder.
    """

    output: Path
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
        return checkpoint.steps(self.output / "checkpoints")[-1]

    @property
    def scores(self) -> Row:
        """Validation scores of `best`, {"abs_rel": 0.08, ...}; with several heads `depth/abs_rel`."""
        return dict(checkpoint.verify(self.best).scores)

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
        from densevit.api.checkpoint import load

        return load(self.best, encoder=self.encoder)


def train(config: str | Path | Mapping[str, Any], /, *, resume: bool | str | Path = False, **overrides: Any) -> Run:
    """Trains a model, as `densevit train` does: the same checks, messages and bits.

    >>> run = densevit.train("depth/folder", data={"root": "mine"}, output="runs/mine")  # doctest: +SKIP
    >>> depth = run.predictor("photo.jpg")  # doctest: +SKIP

    Args:
        config: a YAML file, the name of a recipe (`densevit recipes`), or the tree of a config as a dict.
        resume: True goes on from the newest good checkpoint of `output` (or starts, where there is none); or the path
            of a checkpoint.
        overrides: keys of the config, nested or dotted: `optim={"lr": 1e-4}` or `**{"optim.lr": 1e-4}`. A dict with a
            `type` replaces a component. Objects may stand for `model["encoder"]` (an nn.Module that returns feature
            maps; it is trained in place), and `data["train"]` and `data["val"]` (a `densevit.Dataset`, or a sequence
            of (image, depth) pairs; see `densevit.Pairs`).

    Returns:
        the run; its best checkpoint is `run.best`, ready to predict `run.predictor`.

    Raises:
        ConfigError: every fault of the config at once; `output` already holds a run.
        DataError: a data set is not where or what it should be.
        CheckpointError: weights that are missing or do not fit.
        Diverged: too many steps in a row were not finite; the last good checkpoint stays.
        Preempted: Ctrl-C or SIGTERM; the last step is saved, and `resume=True` goes on. A second one ends the process.
    """
    how = "auto" if resume is True else str(resume) if resume else None
    return run_training(Draft.from_python(config, overrides), how)


def run_training(draft: Draft, resume: str | None = None) -> Run:
    """Trains a config that was read: plan, data sets, trainer, report.

    Args:
        resume: None to start anew, `auto` for the newest good checkpoint of the run, or a path.
    """
    poll(NOT_STARTED)
    plan = planning.resolve_plan(draft)
    with distributed.process_group(plan.run.device) as world, run_folder.locked(plan.run.output, world) as lock:
        found = run_folder.find_checkpoint(plan.run, resume, world)
        poll(NOT_STARTED)
        plan = plan.open()
        poll(NOT_STARTED)
        return fit(plan, world, found, lock)


def fit(plan: Plan, world: DistributedContext, found: Found | None, lock: FolderLock) -> Run:
    """Trains a plan whose data sets are open, in a folder that is locked."""
    trainer = build_trainer(plan, world)
    if found is not None:
        trainer.resume(*found)
    run_folder.write_config(plan.run, world)
    trainer.checkpointer.before_save = lock.check
    opening = trainer.describe(len(plan.train), len(plan.val) if plan.val else 0)
    trainer.on_validated = lambda: write_training_report(plan, trainer.checkpointer.folder, opening)
    if world.is_main:
        print(opening, flush=True)
    features = training.cached_features(plan, trainer, world)
    try:
        scores = trainer.fit(training.train_batches(plan, world, features), training.val_batches(plan, world))
    except Preempted:
        write_report(plan, trainer, opening, None)  # without images, for there may be little time
        raise
    page = write_report(plan, trainer, opening, world.device)
    if world.is_main:
        if page:
            print(f"report: {page}")
        if trainer.objective.trains == "encoder":
            training.write_best_encoder(plan)
            print(f"encoder: {plan.run.output / training.ENCODER}  (for model.encoder.weights)")
        if best := trainer.checkpointer.folder.best():
            scores = dict(checkpoint.verify(best).scores)
        print(f"done: {plan.run.output}" + (f", best {best.name}" if best else ""))
        if scores:
            print("  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    encoder = plan.model.encoder
    return Run(plan.run.output, encoder.build() if encoder.name == OBJECT else None)


def write_report(plan: Plan, trainer: Trainer, opening: str, device: torch.device | None) -> Path | None:
    """Writes `report.html`; the other processes wait, for torchrun ends all as soon as one has failed."""
    return trainer.world.on_main(lambda: write_training_report(plan, trainer.checkpointer.folder, opening, device))


def overfit_one_batch(draft: Draft) -> str:
    """Trains on the first batch only and writes nothing; returns the verdict.

    Raises:
        Diverged: it is not learned.
    """
    poll(NOT_STARTED)
    plan = planning.resolve_plan(draft)
    with distributed.process_group(plan.run.device) as world:
        plan = plan.open()
        plan = replace(plan, run=overfit_config(plan.run))
        trainer = build_trainer(plan, world)
        plan = replace(plan, run=replace(plan.run, data=replace(plan.run.data, cache_features=None)))
        return overfit(trainer.train_step, plan.run, training.train_batches(plan, world))


def build_trainer(plan: Plan, world: DistributedContext) -> Trainer:
    """The trainer, with the seeds set: one for the weights, then one for each process. Warns of what looks wrong."""
    seed.seed_everything(plan.run.seed)
    trainer = training.build_trainer(plan, world)
    for warning in world.on_main(lambda: training.run_sanity_checks(plan, trainer.card, trainer.tasks)):
        if world.is_main:
            print(f"warning: {warning}", file=sys.stderr)
    seed.reseed(plan.run.seed, world.rank)
    return trainer
