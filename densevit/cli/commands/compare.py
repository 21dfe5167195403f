"""Compare two evaluations of the same images: is one system better, or could other images say the opposite?"""

import argparse
from pathlib import Path

from densevit.cli.options.types import words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A", help="a folder that eval-depth or eval-seg wrote (--output)")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument("--metrics", type=words, default=(), metavar="A,B", help="default: all that both have")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the comparison there as an HTML page")


def run(args: argparse.Namespace) -> int:
    from densevit.evaluation.compare import compare, table, write_html

    found = compare(args.a, args.b, args.metrics)
    print(table(found))
    if args.output is not None:
        print(f"written: {write_html(args.output, found, args.a, args.b)}")
    return 0
