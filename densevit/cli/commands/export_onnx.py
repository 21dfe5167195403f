"""Write a checkpoint as one ONNX file, which other programs run without densevit or torch.

The graph takes images as they are decoded, and gives maps of their size: resizing and normalisation are inside. It
is opened by ONNX Runtime and compared with torch before it is kept.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint
from densevit.cli.options.inference import add_crop_option, add_focal_option, find_crop
from densevit.cli.options.types import positive_int_or_dynamic, size, words

if TYPE_CHECKING:
    from densevit.inference.onnx.metadata import OnnxExportOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint folder or file, ours or published")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="ends in .onnx")
    parser.add_argument("--image-size", type=size, metavar="H,W", help="height and width of the images: 480,640")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")

    given = parser.add_argument_group("input")
    given.add_argument(
        "--batch-size",
        type=positive_int_or_dynamic,
        default=1,
        metavar="N",
        help="number of images at once (1); dynamic: any number",
    )
    given.add_argument("--float", action="store_true", help="b x 3 x h x w in [0, 1] instead of bytes b x h x w x 3")
    given.add_argument(
        "--no-preprocessing",
        action="store_true",
        help="only the network: for images that are already resized, as float; --image-size is theirs",
    )

    output = parser.add_argument_group("output")
    output.add_argument(
        "--head", metavar="NAMES", type=words, default=(), help="comma-separated; all heads unless given"
    )
    output.add_argument("--argmax", action="store_true", help="classes of pixels as ids, not logits")
    output.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    add_crop_option(output)
    add_focal_option(output)
    checkpoint.add_checkpoint_options(parser.add_argument_group("model"))


def run(args: argparse.Namespace) -> int:
    from densevit.inference.onnx.export import check_output, export_onnx

    check_output(args.output, overwrite=args.overwrite)
    options = export_options(args)
    from densevit.builder.checkpoint import restore

    family, family_options = checkpoint.format_options(args)
    model, card = restore(args.checkpoint, family, **family_options)
    exported = export_onnx(model, card, args.output, options)
    for path in exported.paths:
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    for name, text in exported.metadata.items():
        if name.startswith("input "):
            print(f"  {name}: {text}")
    for name, error in exported.errors.items():
        print(f"  output {name}: {exported.metadata[f'output {name}']}; off torch by {error:.1e} of the largest value")
    return 0


def export_options(args: argparse.Namespace) -> "OnnxExportOptions":
    """
    Raises:
        ConfigError, DataError: choices that do not go together.
    """
    from densevit.errors import ConfigError
    from densevit.inference.onnx.metadata import OnnxExportOptions

    if args.image_size is None and not args.no_preprocessing:
        raise ConfigError("--image-size: give height and width of the images that the file is for, as 480,640.")
    if args.no_preprocessing and (args.crop or args.flip):
        raise ConfigError("--no-preprocessing: goes without --flip and --crop, which are not part of the network.")
    crop = find_crop(args.crop)
    return OnnxExportOptions(
        size=args.image_size,
        batch=args.batch_size,
        heads=args.head,
        labels=args.argmax,
        floats=args.float,
        network=args.no_preprocessing,
        flip=args.flip,
        box=None if crop is None else crop(*args.image_size),
        focal=args.focal,
    )
