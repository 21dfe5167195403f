"""Score a checkpoint, or depth maps that any system saved, by the protocol of a paper."""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint, dataset, inference, predictions
from densevit.cli.options.types import words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser, optional=True)
    dataset.add_dataset_options(parser, "nyu, kitti, rooms, folder")
    parser.add_argument("--protocol", help="a name (`densevit protocols` lists them), or all; default: by the data")
    parser.add_argument("--align", metavar="NAME", help="fit predictions to each ground truth: lstsq, median, ...")
    parser.add_argument(
        "--metrics",
        type=words,
        default=(),
        metavar="A,B",
        help="beside the nine standard ones: extra, silog, kitti, curve, boundary, distance, points, fov, "
        "uncertainty (always, where the model predicts it)",
    )
    maps = parser.add_argument_group("saved maps")
    predictions.add_prediction_options(maps, "depth maps", ".png")
    predictions.add_prediction_type_options(maps)
    maps.add_argument(
        "--gt-cache",
        type=Path,
        metavar="DIR",
        help="keep decoded ground truth there (float32 NPY), so that further evaluations need not decode it",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write metrics.json, per_image.csv and report.html there"
    )
    parser.add_argument(
        "--flip",
        action=argparse.BooleanOptionalAction,
        help="average with the mirrored image's prediction; default: as the protocol does",
    )
    parser.add_argument("--head", help="of a model that has several depth heads")
    parser.add_argument(
        "--points",
        type=int,
        metavar="N",
        help="give the model N random points of each image's ground truth (its prompt, or a fit), always the "
        "same ones; all other pixels are scored",
    )
    inference.add_focal_option(parser)
    inference.add_tiling_options(parser)
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.api.evaluation import score
    from densevit.evaluation.depth.extra_metrics import find_sets
    from densevit.weights.recorded_run import recorded_protocol

    predictions.require_one_source(args)
    if args.output is not None:
        args.metrics = tuple(dict.fromkeys((*args.metrics, "distance", "fov")))  # their charts belong to a report
    find_sets(args.metrics)
    spec, data = dataset.open_data(args)
    protocol = args.protocol
    if protocol is None and args.data is None:
        protocol = recorded_protocol(args.checkpoint, args.head)
    given = args.predictions or checkpoint.load(args, data=data, tiling=inference.tiling(args), focal=args.focal)
    options = predictions.given_options(args)
    found = score(
        given, data, spec["type"], task="depth", protocol=protocol, head=args.head, align=args.align,
        metrics=args.metrics, flip=args.flip, prediction_type=args.prediction_type, scale=args.scale,
        gt_cache=args.gt_cache, points=args.points, **options,
    )  # fmt: skip
    dataset.report(found, args, spec)
    return 0
