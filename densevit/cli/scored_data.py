"""Which data a model is scored on: options that all `eval-*` commands with a data set share."""

import argparse
from pathlib import Path
from typing import Any

NO_NUMBERS = ("output", "workers", "truth_cache")
"""Options that say where to and how fast."""


def add_arguments(parser: argparse.ArgumentParser, examples: str) -> None:
    """
    Args:
        examples: names of data sets that have what is scored, for the help.
    """
    add = parser.add_argument
    add("--data", required=True, metavar="NAME", help=f"{examples}, ...")
    add("--root", type=Path, help="the data set's folder; default: its own below $DENSEVIT_DATASETS")
    add("--split", help="default: test, where the data set has one")
    add("--option", action="append", default=[], metavar="key=value", help="of the data set; repeatable")


def spec(args: argparse.Namespace) -> dict[str, Any]:
    """The data set as a config would name it."""
    from densevit.data.dataset import DATASETS
    from densevit.document import Document
    from densevit.registry import choices, default

    document = Document({"type": args.data})
    for item in args.option:
        document.override(item)
    if args.root is not None:
        document.tree["root"] = str(args.root.absolute())
    part = DATASETS.parts.get(args.data)
    if args.split is not None:
        document.tree["split"] = args.split
    elif part is not None and default(part, "split") == "train" and "test" in choices(part, "split"):
        document.tree.setdefault("split", "test")
    return document.tree


def asked(args: argparse.Namespace) -> dict[str, str]:
    """What the user asked for, as the files of an evaluation tell it: all that a number may depend on."""
    told = {key: value for key, value in vars(args).items() if key not in NO_NUMBERS}
    return {key: str(value) for key, value in told.items() if value not in (None, False, [], ())}
