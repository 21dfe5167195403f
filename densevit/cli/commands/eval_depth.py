"""Score a checkpoint, or depth maps that any system saved, by the protocol of a paper."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, dataset, inference, predictions
from densevit.cli.options.types import words

if TYPE_CHECKING:
    from densevit.inference.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a model.safetensors")
    dataset.add_dataset_options(parser, "nyu, kitti, rooms, folder")
    parser.add_argument("--protocol", help="a name (`densevit protocols` lists them), or all; default: by the data")
    parser.add_argument("--align", metavar="NAME", help="fit predictions to each ground truth: lstsq, median, ...")
    parser.add_argument(
        "--metrics",
        type=words,
        default=(),
        metavar="A,B",
        help="beside the nine standard ones: extra, silog, kitti, curve, boundary, distance, points",
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
    inference.add_focal_option(parser)
    inference.add_tiling_options(parser)
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.data.datasets.base import open_dataset
    from densevit.data.predictions import SavedMaps
    from densevit.evaluation.depth.extra_metrics import find_sets
    from densevit.evaluators.depth import evaluate_depth, select_protocols
    from densevit.utils.atomic_io import check_can_create

    predictions.require_one_source(args)
    if args.output is not None and "distance" not in args.metrics:
        args.metrics = (*args.metrics, "distance")  # its charts belong to a report
    find_sets(args.metrics)
    spec = dataset.dataset_spec(args)
    data = open_dataset(spec)
    protocol = args.protocol or (run_protocol(args) if args.data is None else None)
    if args.checkpoint is None:
        kind = args.prediction_type
        protocols = select_protocols(protocol, data, spec["type"], kind, align=args.align)
        source: SavedMaps | Predictor = SavedMaps(
            args.predictions,
            data.names,
            kind=kind,
            scale=args.scale,
            suffix=args.suffix,
            manifest=args.manifest,
            allow_outside=args.allow_outside_root,
        )
    else:
        source = checkpoint.load(args, tiling=inference.tiling(args), focal=args.focal)
        kind = source.card.outputs[source.head(args.head)].kind
        protocols = select_protocols(protocol, data, spec["type"], kind, align=args.align, same_crop=True)
    if args.output is not None:
        check_can_create(args.output)
    found = evaluate_depth(
        source,
        data,
        protocols,
        metrics=args.metrics,
        head=args.head,
        flip=args.flip,
        workers=args.workers,
        gt_cache=args.gt_cache,
        progress=True,
    )
    dataset.report(found, args, spec)
    return 0


def run_protocol(args: argparse.Namespace) -> str | None:
    """What the checkpoint's training was validated by."""
    tasks: Mapping[str, Mapping[str, str]] = dataset.recorded_run(args).get("tasks") or {}
    task = tasks.get(args.head or "depth") or next(iter(tasks.values()), {})
    return task.get("protocol")
