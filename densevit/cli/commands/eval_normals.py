"""Score surface normals: of a head that gives them, of the depth that a checkpoint gives, or saved by any system.

Mean, median and RMS angle, and the share of pixels within 5, 7.5, 11.25, 22.5 and 30 degrees. The truth is the data
set's normals, else plane fits to its depth.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint, dataset, inference, predictions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser, optional=True)
    dataset.add_dataset_options(parser, "rooms, nyu, folder")
    parser.add_argument(
        "--protocol",
        default="dsine",
        help="dsine: all pixels pooled (default); marigold: the mean over images of each image's scores",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write metrics.json, per_image.csv and report.html there"
    )
    maps = parser.add_argument_group("saved normals")
    predictions.add_prediction_options(maps, "normals (PNG, NPY, EXR)", ".normals.png")
    maps.add_argument(
        "--axes",
        choices=["opencv", "opengl", "dsine"],
        default="opencv",
        help="of --predictions: right, down, forward (default); right, up, back (Marigold); left, up, back (DSINE)",
    )
    model = parser.add_argument_group("model")
    inference.add_inference_options(model)
    model.add_argument("--head", help="of several; one that gives metric depth is scored by the normals of its depth")
    checkpoint.add_compute_options(model)
    checkpoint.add_checkpoint_options(model)


def run(args: argparse.Namespace) -> int:
    from densevit.api.evaluation import score
    from densevit.evaluation.normals.protocol import find_protocol

    predictions.require_one_source(args)
    find_protocol(args.protocol)
    spec, data = dataset.open_data(args)
    given = args.predictions or inference.load(args, data=data)
    options = predictions.given_options(args)
    found = score(
        given, data, spec["type"], task="normals", protocol=args.protocol, head=args.head, axes=args.axes, **options
    )
    dataset.report(found, args, spec)
    return 0
