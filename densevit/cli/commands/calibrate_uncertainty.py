"""Calibrate the depth intervals of a checkpoint on held-out images, and save it with them in its card.

Needs a head with `uncertainty: laplace`. Take images that the model was not trained on, and others than those that it
will be scored on: the intervals then hold the given share of the pixels of further images of the same kind.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint, dataset, inference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser)
    dataset.add_dataset_options(parser, "rooms, nyu, folder")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the new checkpoint")
    parser.add_argument("--level", type=float, default=0.9, metavar="SHARE", help="of pixels in the interval (0.9)")
    parser.add_argument("--head", help="of a model that has several depth heads")
    inference.add_focal_option(parser)
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.data.datasets.base import open_dataset
    from densevit.errors import ConfigError
    from densevit.evaluators.intervals import calibrate_intervals, with_interval
    from densevit.utils.atomic_io import check_can_create

    if args.output.exists():
        raise ConfigError(f"--output: {args.output} exists already; choose another folder.")
    check_can_create(args.output)
    spec = dataset.dataset_spec(args)
    predictor = checkpoint.load(args, focal=args.focal)
    predictor.check_savable()
    data = open_dataset(spec)
    name = " ".join(str(spec[key]) for key in ("type", "root", "split") if spec.get(key))
    head, interval = calibrate_intervals(predictor, data, level=args.level, head=args.head, name=name)
    predictor.with_options(card=with_interval(predictor.card, head, interval)).save_pretrained(args.output)
    print(f"head {head}: intervals of {interval.level:.0%}, calibrated on {interval.images} images of {name}")
    print("depth in metres   " + "".join(f"{depth:8.2f}" for depth in interval.depths))
    print("factor of b       " + "".join(f"{factor:8.2f}" for factor in interval.factors))
    print(f"written: {args.output}")
    return 0
