"""Score which of two points is closer, on pairs that people have labelled (DA-2K): for a checkpoint or saved maps."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli.options import checkpoint, predictions

if TYPE_CHECKING:
    from densevit.evaluation.depth.ordinal import OrdinalScores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a weights file")
    parser.add_argument("--pairs", type=Path, required=True, metavar="JSON", help="DA-2K's annotations.json")
    parser.add_argument("--images", type=Path, metavar="DIR", help="what its paths lie under; default: its own folder")
    parser.add_argument("--predictions", type=Path, metavar="DIR", help="score the maps in this folder instead")
    parser.add_argument(
        "--prediction-type",
        choices=["metric", "affine", "disparity"],
        default="metric",
        help="of --predictions: bigger is farther (metric, affine) or nearer (disparity)",
    )
    parser.add_argument("--scale", type=float, help="stored units per metre of metric PNG16 maps that do not say")
    parser.add_argument("--suffix", help="which files of --predictions to take, .png say")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the scores as JSON, with every image's")
    checkpoint.add_format_options(parser)
    parser.add_argument("--head", help="which head of a model that has several")
    checkpoint.add_compute_options(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    import json

    from densevit.config import plugins
    from densevit.data.index.paths import inside
    from densevit.evaluation.depth.ordinal import ordinal_scores, read_pairs
    from densevit.utils.atomic_io import check_can_create, make_folder, write_text

    predictions.demand_one_source(args)
    plugins.load(args.plugin)
    pairs = read_pairs(args.pairs)
    inside(pairs, args.pairs)
    if args.output is not None:
        check_can_create(args.output.parent)
    read, disparity = saved(args, list(pairs)) if args.checkpoint is None else predicted(args)
    scores = ordinal_scores(pairs, read, disparity=disparity)
    print(table(scores))
    if args.output is not None:
        make_folder(args.output.parent)
        write_text(args.output, json.dumps(scores.to_dict(), indent=1))
        print(f"written: {args.output}")
    return 0


def predicted(args: argparse.Namespace) -> tuple[Callable[[str], Any], bool]:
    """What reads the prediction for an image, and whether bigger is nearer.

    Raises:
        ConfigError: a head that gives no depth.
    """
    from densevit import api
    from densevit.errors import ConfigError

    folder = args.images or args.pairs.parent
    predictor = api.load(args.checkpoint, **checkpoint.compute_kwargs(args), **checkpoint.format_kwargs(args))
    head = predictor.head(args.head)
    kind = predictor.card.outputs[head].kind
    if kind not in ("metric", "affine", "disparity"):
        raise ConfigError(f"head '{head}' gives {kind}, not depth.")
    return lambda image: predictor(folder / image, head=head), kind == "disparity"


def saved(args: argparse.Namespace, images: list[str]) -> tuple[Callable[[str], Any], bool]:
    from densevit.data.io.readers import image_size
    from densevit.data.predictions import SavedMaps
    from densevit.evaluation.depth.preprocess import paste_or_resize

    folder = args.images or args.pairs.parent
    names = {image: image.rpartition(".")[0] for image in images}
    maps = SavedMaps(
        args.predictions, list(names.values()), kind=args.prediction_type, scale=args.scale, suffix=args.suffix
    )

    def read(image: str) -> Any:
        h, w = image_size(folder / image)
        return paste_or_resize(maps.read(names[image]), (h, w), (0, h, 0, w), "borders")[0]

    return read, args.prediction_type == "disparity"


def table(scores: "OrdinalScores") -> str:
    spread = "" if scores.interval is None else " (95% interval: {:.4f} to {:.4f})".format(*scores.interval)
    lines = [
        f"{scores.accuracy:.4f} of {scores.count:,} pairs in {len(scores.images):,} images are ordered as people do"
        f"{spread}."
    ]
    if len(scores.groups) > 1:
        lines += [f"  {name or '.'}: {share:.4f} of {count:,}" for name, (share, count) in scores.groups.items()]
    return "\n".join(lines)
