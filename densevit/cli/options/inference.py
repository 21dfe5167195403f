"""Options of how a model is applied to an image: test-time augmentation, sliding window, tiles, focal length."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from densevit.cli.options import checkpoint
from densevit.cli.options.checkpoint import Parser
from densevit.cli.options.types import positive_int, scales

if TYPE_CHECKING:
    from collections.abc import Callable

    from densevit.inference.camera import Lens
    from densevit.inference.predictor import Predictor
    from densevit.inference.tiling import Tiling
    from densevit.structures import Box


def add_inference_options(parser: Parser, *, focal: bool = True) -> None:
    """Test-time augmentation and sliding window; see `apply`.

    Args:
        focal: with the focal length.
    """
    parser.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    parser.add_argument(
        "--scales",
        type=scales,
        default=(1.0,),
        metavar="A,B",
        help="average over these scales of the image: 0.5,0.75,1,1.25,1.5,1.75 for example (1)",
    )
    parser.add_argument("--window-size", type=positive_int, metavar="PIXELS", help="side of a sliding window")
    parser.add_argument("--stride", type=positive_int, metavar="PIXELS", help="of the window (two thirds of it)")
    if focal:
        add_focal_option(parser)


def add_focal_option(parser: Parser) -> None:
    parser.add_argument(
        "--focal",
        type=float,
        metavar="PIXELS",
        help="focal length in pixels of the images, before what the data says",
    )


def lens(args: argparse.Namespace) -> "Lens":
    """The camera of --focal or --fov.

    Raises:
        ConfigError: the number makes no camera.
    """
    from densevit.errors import ConfigError
    from densevit.inference.camera import Lens

    name = "focal" if args.focal is not None else "fov"
    value = getattr(args, name)
    try:
        return Lens(**{name: value})
    except ValueError:
        raise ConfigError(f"--{name}: {value:g}; would fit: {Lens.fits[name]}.") from None


VIDEO_OPTIONS = ("start", "end", "every", "fps", "stabilize", "fuse", "lookahead")


def add_video_options(parser: Parser) -> None:
    """Which part of a clip, and how it is stabilised; see `densevit.cli.options.video.clip_plan`."""
    add = parser.add_argument
    add("--start", type=float, metavar="SECONDS", help="begin there")
    add("--end", type=float, metavar="SECONDS", help="stop there; of a camera, after so many")
    add("--every", type=positive_int, metavar="N", help="only every n-th frame")
    add("--fps", type=float, metavar="RATE", help="frames per second of a folder of frames (30)")
    add("--stabilize", action="store_const", const=True, help="against flicker: one running scale for all frames")
    add(
        "--fuse",
        action=argparse.BooleanOptionalAction,
        help="with --stabilize: average static parts per pixel, too (default); --no-fuse: only the scale",
    )
    add("--lookahead", type=int, metavar="N", help="later frames that --stabilize uses (6; 0 for a camera)")


def add_crop_option(parser: Parser) -> None:
    parser.add_argument("--crop", choices=("kb",), help="show the model only this part; kb: KITTI's 352x1216")


def find_crop(name: str | None) -> "Callable[[int, int], Box] | None":
    """Height and width of an image -> the part that the model sees."""
    from densevit.ops.crops import kb_box

    return None if name is None else lambda h, w: kb_box((h, w))


def apply(args: argparse.Namespace, predictor: "Predictor") -> "Predictor":
    """Return a predictor with the options of `add_inference_options`; without --window-size its own window stays.

    Raises:
        ConfigError: a window smaller than a patch; a stride without one, or larger than it.
    """
    from densevit.errors import ConfigError

    resize = predictor.card.resize
    if args.window_size is not None:
        if args.window_size < (patch := predictor.card.multiple):
            raise ConfigError(f"--window-size: {args.window_size} pixels are less than one patch, {patch}.")
        stride = args.stride or max(1, 2 * args.window_size // 3)
        resize = replace(resize, window=(args.window_size, args.window_size), stride=(stride, stride))
    elif args.stride is not None:
        raise ConfigError("--stride: belongs to --window-size.")
    if resize.window and resize.stride and max(resize.stride) > max(resize.window):
        raise ConfigError(f"--stride: {max(resize.stride)} pixels leave gaps between windows of {max(resize.window)}.")
    card = replace(predictor.card, resize=resize)
    return predictor.with_options(flip=args.flip, scales=args.scales, focal=args.focal, card=card)


def load(args: argparse.Namespace, **options: Any) -> "Predictor":
    """The checkpoint that the arguments name, with the options of `add_inference_options` applied.

    Args:
        options: of `checkpoint.load`.
    """
    return apply(args, checkpoint.load(args, **options))


def add_tiling_options(parser: Parser) -> None:
    parser.add_argument(
        "--tile-size",
        type=int,
        metavar="PIXELS",
        help="predict larger images in overlapping tiles of this side, aligned to a prediction of the whole image",
    )
    parser.add_argument("--tile-overlap", type=float, metavar="SHARE", help="of a tile with its neighbour (0.25)")


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
