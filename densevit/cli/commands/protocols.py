"""List the evaluation protocols, or explain one to the pixel."""

import argparse

from densevit.cli.options.types import size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="explain this one; without it all are listed")
    parser.add_argument("--size", type=size, metavar="HxW", help="say which pixels count in a frame of this size")


def run(args: argparse.Namespace) -> int:
    from densevit.errors import ConfigError
    from densevit.evaluation.depth.protocol_text import describe, summary
    from densevit.evaluation.depth.published_protocols import PROTOCOLS
    from densevit.registry import did_you_mean

    if args.name is None:
        print(summary(PROTOCOLS.values()))
    elif args.name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{args.name}'.{did_you_mean(args.name, PROTOCOLS)}")
    else:
        print(describe(PROTOCOLS[args.name], *args.size or ()))
    return 0
