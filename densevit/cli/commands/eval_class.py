"""Score a checkpoint that classifies images: accuracy, top-5, per class, confusion."""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint, dataset
from densevit.cli.options.types import positive_int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser)
    dataset.add_dataset_options(parser, "mnist, digits")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write metrics.json, per_image.csv and confusion.csv there"
    )
    parser.add_argument("--flip", action="store_true", help="average with the mirrored image's logits")
    parser.add_argument("--head", help="of a model that has several heads for classes of images")
    parser.add_argument("--batch-size", type=positive_int, default=32, help="images of one size that share a pass (32)")
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.api.evaluation import score

    spec, data = dataset.open_data(args)
    predictor = checkpoint.load(args, data=data, flip=args.flip, batch_size=args.batch_size)
    found = score(predictor, data, spec["type"], task="classification", head=args.head)
    dataset.report(found, args, spec)
    return 0
