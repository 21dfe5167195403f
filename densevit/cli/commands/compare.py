"""Say whether one of two evaluations of the same images is better, or whether other images could say the opposite."""

import argparse
from pathlib import Path

from densevit.cli.options.types import words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A", help="a folder that `eval-depth --output` wrote")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument("--metrics", type=words, default=(), metavar="A,B", help="default: all that both have")


def run(args: argparse.Namespace) -> int:
    from densevit.evaluation.compare import compare, table

    print(table(compare(args.a, args.b, args.metrics)))
    return 0
