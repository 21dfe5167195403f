"""The options of tiled inference, shared by the commands that predict depth."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from densevit.ops.tiles import Tiling


def add_arguments(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
    parser.add_argument(
        "--tiles",
        type=int,
        metavar="PIXELS",
        help="see larger images in overlapping squares of so many pixels, fitted to one look at the whole",
    )
    parser.add_argument(
        "--tile-overlap", type=float, metavar="SHARE", help="of a tile that its neighbour sees, too (0.25)"
    )


def tiling(args: argparse.Namespace) -> "Tiling | None":
    """
    Raises:
        ConfigError: an overlap without tiles, or numbers that make none.
    """
    from densevit.errors import ConfigError
    from densevit.ops.tiles import Tiling

    if args.tiles is None:
        if args.tile_overlap is not None:
            raise ConfigError("--tile-overlap: belongs to --tiles.")
        return None
    return Tiling(args.tiles, 0.25 if args.tile_overlap is None else args.tile_overlap)
