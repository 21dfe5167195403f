"""Options of saved predictions, by any system, that are scored in place of a checkpoint's."""

import argparse
from pathlib import Path
from typing import Any

from densevit.cli.options.checkpoint import Parser

MODEL_OPTIONS = ("tile_size", "tile_overlap", "flip", "head", "focal")
MAP_OPTIONS = ("suffix", "manifest", "gt_cache")


def add_prediction_options(parser: Parser, what: str, suffix: str) -> None:
    """
    Args:
        what: is in the files; suffix: that such files may have; both for the help.
    """
    add = parser.add_argument
    add("--predictions", type=Path, metavar="DIR", help=f"score the {what} in this folder instead")
    add("--suffix", help=f"which files of --predictions to take, {suffix} for example")
    add("--manifest", type=Path, metavar="FILE", help="CSV or JSONL of `name` and `prediction`, where names differ")
    add("--allow-outside-root", action="store_true", help="--manifest may name files outside of --predictions")
    add("--workers", type=int, default=2, help="processes that read and score; the result does not depend on it (2)")


def add_prediction_type_options(parser: Parser) -> None:
    """What the numbers in saved depth maps mean."""
    parser.add_argument(
        "--prediction-type",
        choices=["metric", "affine", "disparity"],
        default="metric",
        help="of --predictions: metres (default); depth or disparity without unit, which is aligned to ground truth",
    )
    parser.add_argument("--scale", type=float, help="stored units per metre of PNG16 predictions that do not say")


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_prediction_options`, as `densevit.api.evaluation.score` takes them."""
    return {
        "suffix": args.suffix,
        "manifest": args.manifest,
        "allow_outside_root": args.allow_outside_root,
        "workers": args.workers,
    }


def require_one_source(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigError: neither a checkpoint nor saved maps are named, or both; or an option that is for the other.
    """
    from densevit.errors import ConfigError

    if (args.checkpoint is None) == (args.predictions is None):
        raise ConfigError("give either a CHECKPOINT or --predictions DIR.")
    others, where = (MODEL_OPTIONS, "a CHECKPOINT") if args.checkpoint is None else (MAP_OPTIONS, "--predictions")
    if given := [name for name in others if getattr(args, name, None) not in (None, False)]:
        raise ConfigError(*(f"--{name.replace('_', '-')} goes with {where}." for name in given))
