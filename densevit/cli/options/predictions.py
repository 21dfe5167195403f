"""Maps that any system saved, scored in place of a checkpoint's: options that the commands for them share."""

import argparse
from pathlib import Path

OF_MODELS = ("tiles", "tile_overlap", "flip", "head", "focal")
OF_MAPS = ("suffix", "manifest")


def add_arguments(group: "argparse._ArgumentGroup", what: str, suffix: str) -> None:
    """
    Args:
        what: is in the files; suffix: that such files may have; both for the help.
    """
    add = group.add_argument
    add("--predictions", type=Path, metavar="DIR", help=f"score the {what} in this folder instead")
    add("--suffix", help=f"which files of --predictions to take, {suffix} say")
    add("--manifest", type=Path, help="CSV or JSONL with `name` and `prediction`, where names do not match")
    add("--allow-outside-root", action="store_true", help="--manifest may name files outside of --predictions")
    add("--workers", type=int, default=2, help="processes that read and score; the result is the same")


def demand_one_source(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigError: neither a checkpoint nor saved maps are named, or both; or an option that is for the other.
    """
    from densevit.errors import ConfigError

    if (args.checkpoint is None) == (args.predictions is None):
        raise ConfigError("give either a CHECKPOINT or --predictions DIR.")
    theirs, where = (OF_MODELS, "a CHECKPOINT") if args.checkpoint is None else (OF_MAPS, "--predictions")
    if given := [name for name in theirs if getattr(args, name, None) not in (None, False)]:
        raise ConfigError(*(f"--{name.replace('_', '-')} goes with {where}." for name in given))
