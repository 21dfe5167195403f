"""Options of how a model looks at an image, shared by the commands that use one."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from densevit.inference.predictor import Predictor


def add_inference_options(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
    parser.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    parser.add_argument(
        "--scales",
        type=scales,
        default=(1.0,),
        metavar="A,B",
        help="average over the image seen so many times larger: 0.5,0.75,1,1.25,1.5,1.75 say (1)",
    )
    parser.add_argument("--window-size", type=side, metavar="PIXELS", help="a square window that slides over the image")
    parser.add_argument("--stride", type=side, metavar="PIXELS", help="of the window (two thirds of it)")
    parser.add_argument(
        "--focal", type=float, metavar="PIXELS", help="of the camera; for models whose metres depend on it"
    )


def apply(args: argparse.Namespace, predictor: "Predictor") -> None:
    """Sets what was asked; a window of the checkpoint's own stays unless another is named.

    Raises:
        ConfigError: a window smaller than a patch; a stride without one, or larger than it.
    """
    from densevit.errors import ConfigError
    from densevit.inference.camera import camera_for

    predictor.flip, predictor.scales, predictor.focal = args.flip, args.scales, args.focal
    camera_for(predictor.card.outputs, args.focal)
    rule = predictor.card.resize
    if args.window_size is not None:
        stride = args.stride or max(1, 2 * args.window_size // 3)
        rule = replace(rule, window=(args.window_size, args.window_size), stride=(stride, stride))
    elif args.stride is not None:
        raise ConfigError("--stride: belongs to --window-size.")
    if args.window_size is not None and args.window_size < predictor.card.multiple:
        raise ConfigError(
            f"--window-size: {args.window_size} pixels are less than one patch, {predictor.card.multiple}."
        )
    if rule.window and rule.stride and max(rule.stride) > max(rule.window):
        raise ConfigError(f"--stride: {max(rule.stride)} pixels leave gaps between windows of {max(rule.window)}.")
    predictor.card = replace(predictor.card, resize=rule)


def side(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def scales(text: str) -> tuple[float, ...]:
    values = tuple(map(float, text.split(",")))
    if not all(0 < value <= 8 for value in values):
        raise argparse.ArgumentTypeError(f"scales lie between 0 and 8, got {text!r}")
    return values


if TYPE_CHECKING:
    from densevit.inference.tiling import Tiling


def add_tiling_options(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
    parser.add_argument(
        "--tile-size",
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
    from densevit.inference.tiling import Tiling

    if args.tile_size is None:
        if args.tile_overlap is not None:
            raise ConfigError("--tile-overlap: belongs to --tile-size.")
        return None
    return Tiling(args.tile_size, 0.25 if args.tile_overlap is None else args.tile_overlap)
