"""Correct the metres of a checkpoint by measured images: a scale, an affine or a log-affine map.

Which one, and whether it helps, is decided on images left out of the fit. The result is a new checkpoint whose card
holds the correction and where it came from; it is applied wherever the checkpoint is used, ONNX files too.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint, dataset, inference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser)
    dataset.add_dataset_options(parser, "folder, rooms, nyu")
    parser.add_argument(
        "--points", type=Path, metavar="FILE", help="in place of --data: CSV of image, u, v, depth (pixels, metres)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new folder for the checkpoint")
    parser.add_argument("--head", help="of a model that has several metric heads")
    inference.add_focal_option(parser)
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.data.datasets.base import open_dataset
    from densevit.errors import ConfigError
    from densevit.evaluators import calibration

    if args.points is not None and args.data is not None:
        raise ConfigError("calibrate: give one of --data and --points.")
    if args.output.exists():
        raise ConfigError(f"--output: {args.output} exists already; a calibration is written into a new folder.")
    data = None if args.points is not None else open_dataset(dataset.dataset_spec(args))
    predictor = checkpoint.load(args, focal=args.focal)
    predictor.check_savable()
    head = predictor.card.head_for(("metric",), [args.head] if args.head else (), "calibrate")
    if predictor.card.outputs[head].calibration is not None:
        raise ConfigError(f"calibrate: head '{head}' is calibrated already; take the checkpoint that it came from.")
    if data is None:
        found, source = list(calibration.measure_points(predictor, args.points, head)), str(args.points)
    else:
        found, source = list(calibration.measure(predictor, data, head)), f"{args.data} ({len(data)} images)"
    result = calibration.choose_calibration(found)
    card = calibration.calibrated_card(predictor.card, head, result, source)
    predictor.with_options(card=card).save_pretrained(args.output)
    print(result)
    print(f"calibrated: {args.output}")
    return 0
