"""Write a checkpoint in another layout: densevit, huggingface, depth-anything-v2, ... Nothing is overwritten.

Every tensor that runs is equal bit by bit; what is written is read back before the command says so.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="a checkpoint, ours or published; or hf:owner/name")
    parser.add_argument("target", metavar="OUT", type=Path, help="a file, or a folder for layouts that are one")
    parser.add_argument("--to", required=True, metavar="LAYOUT", help="densevit, huggingface, depth-anything-v2, ...")
    checkpoint.add_format_options(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit.builder.convert import convert
    from densevit.config import plugins

    plugins.load(args.plugin)
    chosen = checkpoint.format_kwargs(args)
    notes = convert(args.source, args.target, args.to, chosen["family"], **chosen["family_options"])
    print(f"written: {args.target}")
    for note in notes:
        print(f"note: {note}")
    return 0
