"""Score a checkpoint that classifies pixels, or label maps that any system saved.

mIoU, pixel and mean accuracy, frequency-weighted IoU and boundary IoU, of all pixels together as mmseg counts them,
with intervals; then each class and the confusion matrix.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint, dataset, inference, predictions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser, optional=True)
    dataset.add_dataset_options(parser, "ade20k, cityscapes, rooms, folder")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write JSON, CSV, confusion.png and report.html there"
    )
    parser.add_argument(
        "--boundary", action=argparse.BooleanOptionalAction, default=True, help="boundary IoU, too (default: yes)"
    )
    maps = parser.add_argument_group("saved label maps")
    predictions.add_prediction_options(maps, "label maps", ".labels.png")
    maps.add_argument(
        "--label-encoding",
        default="classes",
        metavar="WHAT",
        help="what the numbers in them are: classes, positions among the data's classes (default); stored, as in the "
        "label files of the data set; or a JSON or text file that names them",
    )
    model = parser.add_argument_group("model")
    inference.add_inference_options(model)
    model.add_argument("--head", help="of a model that has several heads for classes of pixels")
    checkpoint.add_compute_options(model)
    checkpoint.add_checkpoint_options(model)


def run(args: argparse.Namespace) -> int:
    from densevit.api.evaluation import score
    from densevit.errors import ConfigError

    predictions.require_one_source(args)
    spec, data = dataset.open_data(args)
    if not data.classes:
        raise ConfigError(f"data '{spec['type']}' names no classes, so there is nothing to score.")
    given = args.predictions or inference.load(args, data=data)
    options = {**predictions.given_options(args), "label_encoding": args.label_encoding, "boundary": args.boundary}
    found = score(given, data, spec["type"], task="segmentation", head=args.head, **options)
    dataset.report(found, args, spec)
    return 0
