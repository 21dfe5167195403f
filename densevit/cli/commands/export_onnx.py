"""Write a checkpoint as one ONNX file, which other programs run without densevit or torch.

The graph takes images as they are decoded, and gives maps of their size: resizing and normalisation are inside. It
is opened by ONNX Runtime and compared with torch before it is kept.
"""

import argparse
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, dataset, model_file
from densevit.cli.options.types import budgets

if TYPE_CHECKING:
    from densevit.inference.onnx.metadata import OnnxExportOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    output = model_file.add_export_options(parser, ".onnx", dynamic=True)
    output.add_argument(
        "--precision",
        choices=("fp32", "fp16", "int8"),
        default="fp32",
        help="of the network (fp32); fp16 halves the file, for GPUs; int8 is for CPUs and needs --max-drop",
    )
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
    options = model_file.export_options(args)
    if (args.precision == "int8") != (args.max_drop is not None):
        raise ConfigError("--precision int8 and --max-drop go together: the budget, as d1=0.005.")
    if args.precision == "int8":
        return run_int8(args, options)
    exported = export_onnx(*checkpoint.restore(args), args.output, options)
    model_file.show(exported.paths, exported.metadata, exported.errors)
    return 0


def run_int8(args: argparse.Namespace, options: "OnnxExportOptions") -> int:
    from densevit.api.quantize import as_text, check_int8, export_int8, layers_file
    from densevit.data.datasets.base import open_dataset

    check_int8(args.output, overwrite=args.overwrite)
    spec = dataset.dataset_spec(args)
    data = open_dataset(spec)
    model, card = checkpoint.restore(args)
    found = export_int8(model, card, args.output, options, data, spec["type"], args.max_drop, protocol=args.protocol)
    model_file.show(found.exported.paths, found.exported.metadata, found.exported.errors)
    print(f"  {found.recipe}: {as_text(found.after)}; fp32 {as_text(found.before)}")
    print(f"  {layers_file(args.output)}: the {len(found.kept)} layers in floating point")
    return 0
