"""Options of the commands that write a network as a file for other programs: the input, the heads, what is inside."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options.checkpoint import Parser, add_checkpoint_argument
from densevit.cli.options.inference import add_crop_option, add_focal_option, find_crop
from densevit.cli.options.types import positive_int, positive_int_or_dynamic, size, size_or_dynamic, words

if TYPE_CHECKING:
    from densevit.inference.onnx.metadata import OnnxExportOptions


def add_export_options(parser: argparse.ArgumentParser, suffix: str, *, dynamic: bool) -> argparse._ArgumentGroup:
    """
    Args:
        suffix: of the file, with its dot.
        dynamic: the file may be for images of any size and number.

    Returns:
        the group of options about the output.
    """
    any_size, any_batch = ("; dynamic: images of any size", "; dynamic: any number") if dynamic else ("", "")
    add_checkpoint_argument(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help=f"ends in {suffix}")
    parser.add_argument(
        "--image-size",
        type=size_or_dynamic if dynamic else size,
        metavar="H,W",
        help=f"height and width of the images: 480,640{any_size}",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")

    given = parser.add_argument_group("input")
    given.add_argument(
        "--batch-size",
        type=positive_int_or_dynamic if dynamic else positive_int,
        default=1,
        metavar="N",
        help=f"number of images at once (1){any_batch}",
    )
    given.add_argument("--float", action="store_true", help="b x 3 x h x w in [0, 1] instead of bytes b x h x w x 3")
    given.add_argument(
        "--no-preprocessing",
        action="store_true",
        help="only the network: for images that are already resized, as float; --image-size is theirs",
    )

    output = parser.add_argument_group("output")
    add_heads_option(output)
    output.add_argument("--argmax", action="store_true", help="classes of pixels as ids, not logits")
    output.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    add_crop_option(output)
    add_focal_option(output)
    return output


def add_heads_option(parser: Parser) -> None:
    parser.add_argument(
        "--head", metavar="NAMES", type=words, default=(), help="comma-separated; all heads unless given"
    )


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
    any_size = args.image_size == "dynamic"
    if any_size and crop is not None:
        raise ConfigError("--crop: the window depends on the size; give height and width by --image-size.")
    return OnnxExportOptions(
        size=None if any_size else args.image_size,
        any_size=any_size,
        batch=args.batch_size,
        heads=args.head,
        labels=args.argmax,
        floats=args.float,
        network=args.no_preprocessing,
        flip=args.flip,
        precision="fp16" if args.precision == "fp16" else "fp32",
        box=None if crop is None else crop(*args.image_size),
        focal=args.focal,
    )


def show(paths: Sequence[Path], metadata: Mapping[str, str], errors: Mapping[str, float]) -> None:
    """Prints the files of an export, their inputs and outputs."""
    for path in paths:
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    for name, text in metadata.items():
        if name.startswith("input "):
            print(f"  {name}: {text}")
    for name, error in errors.items():
        print(f"  output {name}: {metadata[f'output {name}']}; off torch by {error:.1e} of the largest value")
