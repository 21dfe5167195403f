"""List the evaluation protocols, or explain one to the pixel."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="explain this one; without it all are listed")
    parser.add_argument("--size", default="", metavar="HxW", help="say which pixels count in a frame of this size")


def run(args: argparse.Namespace) -> int:
    from densevit.errors import ConfigError
    from densevit.evaluation.depth.protocol_text import describe, summary
    from densevit.evaluation.depth.published_protocols import PROTOCOLS
    from densevit.registry import did_you_mean

    size = args.size.lower().split("x") if args.size else []
    if args.size and (len(size) != 2 or not all(side.isdigit() for side in size)):
        raise ConfigError(f"--size {args.size}: height x width in pixels, 375x1242 say.")
    if args.name is None:
        print(summary(PROTOCOLS.values()))
    elif args.name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{args.name}'.{did_you_mean(args.name, PROTOCOLS)}")
    else:
        print(describe(PROTOCOLS[args.name], *map(int, size)))
    return 0
