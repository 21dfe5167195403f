"""Writes a checkpoint as one ONNX file, which other programs run without densevit or torch.

The graph takes pictures as they are decoded, and gives maps of their size: resizing and normalisation are inside. It
is opened by ONNX Runtime and compared with torch before it is kept.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint

if TYPE_CHECKING:
    from densevit.inference.onnx.metadata import OnnxExportOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint folder or file, ours or published")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="ends in .onnx")
    parser.add_argument("--image-size", type=sides, metavar="H,W", help="height and width of the pictures: 480,640")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")

    given = parser.add_argument_group("input")
    given.add_argument(
        "--batch-size", type=count, default=1, metavar="N", help="so many pictures at once (1); dynamic: any number"
    )
    given.add_argument("--float", action="store_true", help="b x 3 x h x w in [0, 1] instead of bytes b x h x w x 3")
    given.add_argument(
        "--no-preprocessing",
        action="store_true",
        help="only the network: pictures come resized, as float; --image-size is its",
    )

    answer = parser.add_argument_group("answer")
    answer.add_argument("--head", metavar="NAMES", help="comma-separated; all heads unless given")
    answer.add_argument("--argmax", action="store_true", help="classes of pixels as ids, not logits")
    answer.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    answer.add_argument("--crop", choices=("kb",), help="the model sees only this part; kb: KITTI's 352x1216")
    answer.add_argument(
        "--focal", type=float, metavar="PIXELS", help="of the camera; for models whose metres depend on it"
    )
    checkpoint.add_format_options(parser.add_argument_group("model"))


def run(args: argparse.Namespace) -> int:
    from densevit.inference.onnx.export import expect, write

    expect(args.output, overwrite=args.overwrite)
    asked = wanted(args)
    from densevit.builder.checkpoint import restore

    chosen = checkpoint.format_kwargs(args)
    model, card = restore(args.checkpoint, chosen["family"], **chosen["family_options"])
    written = write(model, card, args.output, asked)
    for path in written.paths:
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    print(f"  input image: {written.about['input image']}")
    for name, gap in written.gaps.items():
        print(f"  output {name}: {written.about[f'output {name}']}; off torch by {gap:.1e} of the largest value")
    return 0


def wanted(args: argparse.Namespace) -> "OnnxExportOptions":
    """
    Raises:
        ConfigError, DataError: choices that do not go together.
    """
    from densevit.cli.commands.export_depth import find_window
    from densevit.errors import ConfigError
    from densevit.inference.onnx.metadata import OnnxExportOptions

    if args.image_size is None and not args.no_preprocessing:
        raise ConfigError("--image-size: say height and width of the pictures that the file is for, as 480,640.")
    if args.no_preprocessing and (args.crop or args.flip):
        raise ConfigError("--network: goes without --flip and --crop, which are no part of the network.")
    window = find_window(args.crop)
    return OnnxExportOptions(
        size=args.image_size,
        batch=args.batch_size,
        heads=() if args.head is None else tuple(dict.fromkeys(args.head.split(","))),
        labels=args.argmax,
        floats=args.float,
        network=args.no_preprocessing,
        flip=args.flip,
        box=None if window is None else window(*args.image_size),
        focal=args.focal,
    )


def sides(text: str) -> tuple[int, int]:
    h, w = map(int, text.split(","))
    if h < 1 or w < 1:
        raise argparse.ArgumentTypeError(f"sides are 1 or more, got {text!r}")
    return h, w


def count(text: str) -> int | None:
    if text == "dynamic":
        return None
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, or dynamic; got {text!r}")
    return value
