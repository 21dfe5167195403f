"""Train a model from a config; any option of it can be overridden on the command line."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.errors import Preempted
from densevit.utils.signals import poll

if TYPE_CHECKING:
    import torch

    from densevit.builder.plan import Plan
    from densevit.engine.distributed import DistributedContext
    from densevit.engine.run_folder import Found
    from densevit.engine.trainer import Trainer
    from densevit.utils.lock import FolderLock

NOT_STARTED = "stopped before the first step; there is nothing to save."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file, or a recipe by its name: nyu_dinov2_vits_dpt")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="optim.lr=3e-5, batch_size=8, ...")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="PATH",
        help="go on from the newest good checkpoint of `output` (or start, where there is none), or from the one named",
    )
    how.add_argument(
        "--overfit-one-batch",
        action="store_true",
        help="train on the first batch only, to see that model, losses and data fit together; writes nothing",
    )


def run(args: argparse.Namespace) -> int:
    from densevit.config import validation
    from densevit.config.parser import Draft

    if args.resume is not None and "=" in args.resume and not Path(args.resume).exists():
        args.overrides.insert(0, args.resume)  # `--resume optim.lr=1e-5`: an override that came behind it, and no path
        args.resume = "auto"
    draft = Draft.read(args.config, args.overrides)
    if "torch" not in sys.modules:  # else nothing is gained, and a program may have registered components of its own
        validation.check(draft)
    from densevit.builder import plan as planning
    from densevit.engine import distributed, run_folder

    poll(NOT_STARTED)
    plan = planning.resolve_plan(draft)
    with distributed.process_group(plan.run.device) as world:
        if args.overfit_one_batch:
            return overfit(plan.open(), world)
        with run_folder.locked(plan.run.output, world) as lock:
            found = run_folder.find_checkpoint(plan.run, args.resume, world)
            poll(NOT_STARTED)
            plan = plan.open()
            poll(NOT_STARTED)
            return train(plan, world, found, lock)


def train(plan: "Plan", world: "DistributedContext", found: "Found | None", lock: "FolderLock") -> int:
    from densevit.builder import training
    from densevit.engine import run_folder
    from densevit.weights import checkpoint

    trainer = build_trainer(plan, world)
    if found is not None:
        trainer.resume(*found)
    run_folder.write_config(plan.run, world)
    trainer.checkpointer.before_save = lock.check
    opening = trainer.describe(len(plan.train), len(plan.val) if plan.val else 0)
    if world.is_main:
        print(opening, flush=True)
    try:
        scores = trainer.fit(training.train_batches(plan, world), training.val_batches(plan, world))
    except Preempted:
        write_report(plan, trainer, opening, None)  # without images, for there may be little time
        raise
    page = write_report(plan, trainer, opening, world.device)
    if world.is_main:
        if page:
            print(f"report: {page}")
        if best := trainer.checkpointer.folder.best():
            scores = dict(checkpoint.verify(best).scores)
        print(f"done: {plan.run.output}" + (f", best {best.name}" if best else ""))
        print("  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    return 0


def write_report(plan: "Plan", trainer: "Trainer", opening: str, device: "torch.device | None") -> Path | None:
    """Writes `report.html`; the other processes wait, for torchrun ends all as soon as one has failed."""
    from densevit.evaluators.training_report import write_training_report

    return trainer.world.on_main(lambda: write_training_report(plan, trainer.checkpointer.folder, opening, device))


def overfit(plan: "Plan", world: "DistributedContext") -> int:
    from densevit.builder import training
    from densevit.engine.overfit import overfit_config, overfit_one_batch

    plan = replace(plan, run=overfit_config(plan.run))
    trainer = build_trainer(plan, world)
    print(overfit_one_batch(trainer.train_step, plan.run, training.train_batches(plan, world)))
    return 0


def build_trainer(plan: "Plan", world: "DistributedContext") -> "Trainer":
    """The trainer, with the seeds set: one for the weights, then one for each process. Warns of what looks wrong."""
    from densevit.builder import training
    from densevit.engine import seed

    seed.seed_everything(plan.run.seed)
    trainer = training.build_trainer(plan, world)
    for warning in world.on_main(lambda: training.run_sanity_checks(plan, trainer.card)):
        if world.is_main:
            print(f"warning: {warning}", file=sys.stderr)
    seed.reseed(plan.run.seed, world.rank)
    return trainer
