"""Compile a checkpoint to an AOTInductor package, which C++ programs run by libtorch, without Python or densevit.

It takes images as they are decoded, and gives maps of their size. It is compiled for this machine's processor, run, and
compared with torch before it is kept.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint
from densevit.cli.options.inference import add_crop_option, add_focal_option
from densevit.cli.options.types import positive_int, size, words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint folder or file, ours or published")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="ends in .pt2")
    parser.add_argument("--image-size", type=size, metavar="H,W", help="height and width of the images: 480,640")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")

    given = parser.add_argument_group("input")
    given.add_argument("--batch-size", type=positive_int, default=1, metavar="N", help="number of images at once (1)")
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
    parser.set_defaults(precision="fp32")  # the only one


def run(args: argparse.Namespace) -> int:
    from densevit.cli.commands.export_onnx import export_options
    from densevit.inference.pt2.export import check_output, export_pt2

    check_output(args.output, overwrite=args.overwrite)
    options = export_options(args)
    from densevit.builder.checkpoint import restore

    family, family_options = checkpoint.format_options(args)
    model, card = restore(args.checkpoint, family, **family_options)
    exported = export_pt2(model, card, args.output, options)
    print(f"{exported.path}: {exported.path.stat().st_size / 1e6:.1f} MB")
    for name, text in exported.metadata.items():
        if name.startswith("input "):
            print(f"  {name}: {text}")
    for name, error in exported.errors.items():
        print(f"  output {name}: {exported.metadata[f'output {name}']}; off torch by {error:.1e} of the largest value")
    return 0
