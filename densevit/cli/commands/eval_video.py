"""Score how steady depth is over time: of a checkpoint or of saved maps, on clips of a data set or on films.

Of data with ground truth: AbsRel, d1 and RMSE with one alignment per clip, and with poses the temporal alignment error
(TAE). Of every clip: change by optical flow (OPW), the share of steady places, and flicker. Films have no ground truth.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli.options import checkpoint, dataset, inference, predictions
from densevit.cli.options.types import positive_int

if TYPE_CHECKING:
    from densevit.evaluation.video.clip import VideoProtocol


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser, optional=True)
    parser.add_argument("--films", nargs="+", metavar="FILE", help="videos or folders of frames, in place of --data")
    dataset.add_dataset_options(parser, "rooms (walks), tum, scannet, sintel, kitti, folder")
    parser.add_argument(
        "--protocol",
        choices=("plain", "video_depth_anything"),
        default="plain",
        help="plain: all frames, the data set's range; or frames, range, margins of Video Depth Anything's benchmark",
    )
    parser.add_argument(
        "--align", choices=("none", "scale", "affine", "disparity"), help="once per clip; default: by kind"
    )
    parser.add_argument("--frames", type=positive_int, metavar="N", help="at most so many of a clip")
    parser.add_argument(
        "--stabilize", action="store_true", help="score what --stabilize of export-depth makes of the maps"
    )
    parser.add_argument(
        "--fuse",
        action=argparse.BooleanOptionalAction,
        help="with --stabilize: average static parts per pixel, too (default); --no-fuse: only the scale",
    )
    parser.add_argument(
        "--lookahead",
        type=int,
        default=6,
        metavar="N",
        help="later frames that --stabilize uses (6); 0: motion blocks see earlier frames only, too",
    )
    maps = parser.add_argument_group("saved maps")
    predictions.add_prediction_options(maps, "depth maps", ".png")
    predictions.add_prediction_type_options(maps)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write metrics.json, per_clip.csv and report.html there"
    )
    parser.add_argument("--head", help="of a model that has several depth heads")
    inference.add_focal_option(parser)
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.data.predictions import SavedMaps
    from densevit.errors import ConfigError
    from densevit.evaluation.video.clip import USUAL
    from densevit.evaluators.video import evaluate_films, evaluate_video, kind_of
    from densevit.inference.predictor import Predictor

    predictions.require_one_source(args)
    if args.films and (args.checkpoint is None or args.data is not None):
        raise ConfigError("--films: go with a CHECKPOINT, and without --data.")
    if args.films and (args.align is not None or args.protocol != "plain"):
        raise ConfigError("--align and --protocol compare with ground truth, which --films do not have.")
    if args.lookahead < 0:
        raise ConfigError(f"--lookahead: {args.lookahead} frames; there are 0 or more.")
    if args.fuse is not None and not args.stabilize:
        raise ConfigError("--fuse: belongs to --stabilize.")
    options: dict[str, Any] = {
        "head": args.head,
        "stabilize": {"future": args.lookahead, "fuse": args.fuse is not False} if args.stabilize else None,
        "lookahead": args.lookahead,
        "pictures": args.output is not None,
        "progress": True,
    }
    if args.films:
        dataset.check_output(args)
        predictor = checkpoint.load(args, focal=args.focal)
        found = evaluate_films(predictor, args.films, limit=args.frames, **options)
        source: dict[str, Any] = {"checkpoint": str(args.checkpoint), "films": list(args.films)}
    else:
        spec, data = dataset.open_data(args)
        given: Predictor | SavedMaps
        if args.checkpoint is None:
            given = SavedMaps(
                args.predictions, data.names, kind=args.prediction_type, scale=args.scale, suffix=args.suffix,
                manifest=args.manifest, allow_outside=args.allow_outside_root,
            )  # fmt: skip
        else:
            given = checkpoint.load(args, focal=args.focal)
        protocol = protocol_of(args, spec["type"], data.depth_range)
        found = evaluate_video(given, data, protocol, args.align or USUAL[kind_of(given, args.head)], **options)
        source = dataset.evaluation_source(args, spec)
    print(found.summary())
    if args.output is not None:
        title = f"{Path(args.checkpoint or args.predictions).name}, video"
        written = replace(found, title=title, source=source).report(args.output)
        print("written: " + ", ".join(map(str, written)))
    return 0


def protocol_of(args: argparse.Namespace, name: str, depth_range: tuple[float, float]) -> "VideoProtocol":
    """
    Raises:
        ConfigError: the benchmark does not have this data set.
    """
    from dataclasses import replace

    from densevit.errors import ConfigError
    from densevit.evaluation.video.clip import VIDEO_DEPTH_ANYTHING, VideoProtocol

    if args.protocol == "plain":
        protocol = VideoProtocol(range=(max(depth_range[0], 1e-3), depth_range[1]))
    elif name in VIDEO_DEPTH_ANYTHING:
        protocol = VIDEO_DEPTH_ANYTHING[name]
    else:
        raise ConfigError(f"--protocol video_depth_anything: is for {', '.join(VIDEO_DEPTH_ANYTHING)}, not {name}.")
    return protocol if args.frames is None else replace(protocol, frames=args.frames)
