"""Write a checkpoint as one ONNX file, which other programs run without densevit or torch.

The graph takes images as they are decoded, and gives maps of their size: resizing and normalisation are inside. It
is opened by ONNX Runtime and compared with torch before it is kept.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, dataset
from densevit.cli.options.inference import add_crop_option, add_focal_option, find_crop
from densevit.cli.options.types import budgets, positive_int_or_dynamic, size_or_dynamic, words

if TYPE_CHECKING:
    from densevit.inference.onnx.export import ExportedModel
    from densevit.inference.onnx.metadata import OnnxExportOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint folder or file, ours or published")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="ends in .onnx")
    parser.add_argument(
        "--image-size",
        type=size_or_dynamic,
        metavar="H,W",
        help="height and width of the images: 480,640; dynamic: images of any size",
    )
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
    output.add_argument(
        "--precision",
        choices=("fp32", "fp16", "int8"),
        default="fp32",
        help="of the network (fp32); fp16 halves the file, for GPUs; int8 is for CPUs and needs --max-drop",
    )
    add_crop_option(output)
    add_focal_option(output)
    budget = parser.add_argument_group("int8")
    budget.add_argument(
        "--max-drop",
        type=budgets,
        metavar="d1=0.005",
        help="how much worse the int8 file may score than fp32; several with commas: d1=0.005,miou=0.01",
    )
    budget.add_argument("--protocol", help="that depth is scored by; default: by the data")
    dataset.add_dataset_options(budget, "nyu, kitti, rooms, folder")
    checkpoint.add_checkpoint_options(parser.add_argument_group("model"))


def run(args: argparse.Namespace) -> int:
    from densevit.errors import ConfigError
    from densevit.inference.onnx.export import check_output, export_onnx

    check_output(args.output, overwrite=args.overwrite)
    options = export_options(args)
    if (args.precision == "int8") != (args.max_drop is not None):
        raise ConfigError("--precision int8 and --max-drop go together: the budget, as d1=0.005.")
    if args.precision == "int8":
        return run_int8(args, options)
    from densevit.builder.checkpoint import restore

    family, family_options = checkpoint.format_options(args)
    model, card = restore(args.checkpoint, family, **family_options)
    show(export_onnx(model, card, args.output, options))
    return 0


def run_int8(args: argparse.Namespace, options: "OnnxExportOptions") -> int:
    from densevit.api.quantize import as_text, check_int8, export_int8, layers_file
    from densevit.builder.checkpoint import restore
    from densevit.data.datasets.base import open_dataset

    check_int8(args.output, overwrite=args.overwrite)
    spec = dataset.dataset_spec(args)
    data = open_dataset(spec)
    family, family_options = checkpoint.format_options(args)
    model, card = restore(args.checkpoint, family, **family_options)
    found = export_int8(model, card, args.output, options, data, spec["type"], args.max_drop, protocol=args.protocol)
    show(found.exported)
    print(f"  {found.recipe}: {as_text(found.after)}; fp32 {as_text(found.before)}")
    print(f"  {layers_file(args.output)}: the {len(found.kept)} layers in floating point")
    return 0


def show(exported: "ExportedModel") -> None:
    for path in exported.paths:
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    for name, text in exported.metadata.items():
        if name.startswith("input "):
            print(f"  {name}: {text}")
    for name, error in exported.errors.items():
        print(f"  output {name}: {exported.metadata[f'output {name}']}; off torch by {error:.1e} of the largest value")


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
