"""Score which of two points is closer, on pairs that people labelled (DA-2K): of a checkpoint or of saved maps."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, predictions

if TYPE_CHECKING:
    from densevit.evaluation.depth.ordinal import OrdinalScores
    from densevit.inference.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser, optional=True)
    parser.add_argument("--pairs", type=Path, required=True, metavar="JSON", help="DA-2K's annotations.json")
    parser.add_argument("--images", type=Path, metavar="DIR", help="what its paths lie under; default: its own folder")
    parser.add_argument("--predictions", type=Path, metavar="DIR", help="score the maps in this folder instead")
    predictions.add_prediction_type_options(parser)
    parser.add_argument("--suffix", help="which files of --predictions to take, .png for example")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the scores as JSON, with every image's")
    parser.add_argument("--head", help="of a model that has several depth heads")
    checkpoint.add_compute_options(parser)
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    import json

    from densevit.data.predictions import SavedMaps
    from densevit.evaluation.depth.ordinal import read_pairs
    from densevit.evaluators.depth import evaluate_ordinal
    from densevit.utils.atomic_io import check_can_create, make_folder, write_text

    predictions.require_one_source(args)
    pairs = read_pairs(args.pairs)
    if args.output is not None:
        check_can_create(args.output.parent)
    if args.checkpoint is None:
        names = [image.rpartition(".")[0] for image in pairs]
        source: SavedMaps | Predictor = SavedMaps(
            args.predictions, names, kind=args.prediction_type, scale=args.scale, suffix=args.suffix
        )
    else:
        source = checkpoint.load(args)
    scores = evaluate_ordinal(source, pairs, args.images or args.pairs.parent, head=args.head)
    print(summary(scores))
    if args.output is not None:
        make_folder(args.output.parent)
        write_text(args.output, json.dumps(scores.to_dict(), indent=1))
        print(f"written: {args.output}")
    return 0


def summary(scores: "OrdinalScores") -> str:
    spread = "" if scores.interval is None else " (95% interval: {:.4f} to {:.4f})".format(*scores.interval)
    lines = [
        f"{scores.accuracy:.4f} of {scores.count:,} pairs in {len(scores.images):,} images are ordered as people do"
        f"{spread}."
    ]
    if len(scores.groups) > 1:
        lines += [f"  {name or '.'}: {share:.4f} of {count:,}" for name, (share, count) in scores.groups.items()]
    return "\n".join(lines)
