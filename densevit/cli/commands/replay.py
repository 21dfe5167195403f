"""Repeat a training step that was skipped, and show where it went wrong: images, losses, modules, gradients."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options.checkpoint import add_plugin_option

if TYPE_CHECKING:
    from densevit.engine.replay import ReplayResult

FIRST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a recorded step, RUN/skipped_steps/step-N")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="device=cpu, data.train.root=..., ...")
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="which process's images (0)")
    add_plugin_option(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.builder import plan as planning
    from densevit.builder import training
    from densevit.config import plugins
    from densevit.engine import skipped_steps
    from densevit.engine.distributed import DistributedContext
    from densevit.engine.replay import replay
    from densevit.utils import seed
    from densevit.utils.device import choose_device
    from densevit.weights.checkpoint import CONFIG

    processes = len(skipped_steps.read(args.folder).parts)
    fixed = ["model.init_from=null", "data.workers=0"]
    # Never the files that the folder names: it may come from somebody else.
    allowed = [*(path.absolute() for path in args.plugin or ()), *plugins.trusted()]
    fixed.append(f"plugins=[{', '.join(map(str, allowed))}]")
    plan = planning.load_plan(args.folder / CONFIG, [*fixed, *args.overrides]).open()
    world = DistributedContext(choose_device(plan.run.device))
    seed.seed_everything(plan.run.seed)
    trainer = training.build_trainer(plan, world)
    features = training.cached_features(plan, trainer, world)
    batches = training.train_batches(plan, DistributedContext(world.device, args.rank, processes), features)
    print(summary(replay(trainer.state, trainer.forward_backward_step, batches, args.folder, args.rank)))
    return 0


def summary(done: "ReplayResult") -> str:
    """The comparison, for a terminal."""
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
