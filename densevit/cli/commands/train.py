"""Train a model from a config; any option of it can be overridden on the command line."""

import argparse
import sys
from pathlib import Path


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
    from densevit.api import training

    if args.overfit_one_batch:
        print(training.overfit_one_batch(draft))
    else:
        training.run_training(draft, args.resume)
    return 0
